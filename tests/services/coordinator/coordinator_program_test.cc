// penstock-coordinator as users start it: exit codes and signals.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/rpc/address.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// A program that runs, and what it writes to stderr.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    std::array<int, 2> ends;
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    std::string program = PENSTOCK_COORDINATOR_PROGRAM;
    std::vector<char*> argv = {program.data()};
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    stderr_ = ends[0];
  }
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(stderr_);
  }

  // Reads until `text` has come or the program has closed its end.
  void ReadUntil(const std::string& text) {
    std::array<char, 4096> buffer;
    ssize_t count = 0;
    while (output_.find(text) == std::string::npos &&
           (count = read(stderr_, buffer.data(), buffer.size())) > 0) {
      output_.append(buffer.data(), count);
    }
  }
  void Signal(int signal) const { kill(pid_, signal); }
  int AwaitExitCode() {
    ReadUntil("no such text");
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  const std::string& output() const { return output_; }

 private:
  pid_t pid_ = -1;
  int stderr_ = -1;
  std::string output_;
};

class CoordinatorProgramTest : public ::testing::Test {
 protected:
  const TestDirectory own_;
  const std::string state_ = own_.path() / "state.sqlite";
};

TEST_F(CoordinatorProgramTest, Sigterm_EndsWithZero) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Program program(
        {"--listen", "127.0.0.1:0", "--insecure", "--metrics", "off", "--state", state_});
    program.ReadUntil("listens on");
    program.Signal(signal);
    EXPECT_EQ(program.AwaitExitCode(), 0) << program.output();
  }
}

// gRPC's own lines too, where they are asked for.
TEST_F(CoordinatorProgramTest, EveryLineOfTheLog_HasOneFormWithTheTimeInUtc) {
  const auto hour = [] {
    return absl::FormatTime("%Y-%m-%d%ET%H:", absl::Now(), absl::UTCTimeZone());
  };
  const std::string before = hour();
  setenv("GRPC_VERBOSITY", "debug", 1);
  setenv("TZ", "Asia/Tokyo", 1);
  Program program({"--listen", "127.0.0.1:0", "--insecure", "--metrics", "off", "--state", state_});
  unsetenv("GRPC_VERBOSITY");
  unsetenv("TZ");
  program.ReadUntil("listens on");
  program.Signal(SIGTERM);
  EXPECT_EQ(program.AwaitExitCode(), 0);
  EXPECT_THAT(program.output(), HasSubstr(" coordinator: gRPC: "));
  EXPECT_THAT(program.output(), AnyOf(StartsWith(before), StartsWith(hour())));
  for (const absl::string_view line : absl::StrSplit(program.output(), '\n', absl::SkipEmpty())) {
    EXPECT_THAT(std::string(line),
                MatchesRegex("[0-9-]{10}T[0-9:]{8}[.][0-9]{3}Z [TDIWEC] coordinator: .*"));
  }
}

TEST_F(CoordinatorProgramTest, OccupiedPort_IsOneLineAndExitCodeTwo) {
  Program first({"--listen", "127.0.0.1:0", "--insecure", "--metrics", "off", "--state", state_});
  first.ReadUntil(", state");
  const std::string& output = first.output();
  const size_t address = output.find("127.0.0.1:");
  ASSERT_NE(address, std::string::npos) << output;
  const std::string taken = output.substr(address, output.find(',', address) - address);

  Program second(
      {"--listen", taken, "--insecure", "--metrics", "off", "--state", state_ + "-other"});
  EXPECT_EQ(second.AwaitExitCode(), 2);
  EXPECT_THAT(second.output(), MatchesRegex("penstock-coordinator: [^\n]*\n"));
  EXPECT_THAT(second.output(), HasSubstr(taken));
  EXPECT_FALSE(std::filesystem::exists(state_ + "-other"));
}

TEST_F(CoordinatorProgramTest, BadUsage_IsExitCodeTwo) {
  for (const char* arguments :
       {"--no-such-flag", "--listen nowhere", "--metrics 65536", "--log-level loud",
        "--listen 127.0.0.1:0 --state /no/such/directory/state"}) {
    Program program(absl::StrSplit(arguments, ' '));
    EXPECT_EQ(program.AwaitExitCode(), 2) << arguments;
    EXPECT_FALSE(program.output().empty()) << arguments;
  }
  Program help({"--help"});
  EXPECT_EQ(help.AwaitExitCode(), 0);
}

TEST_F(CoordinatorProgramTest, FlagsOfEtcd_AreHeldAgainstEachOther) {
  for (const auto& [arguments, told] : std::vector<std::pair<std::string, std::string>>{
           {"--insecure --listen 127.0.0.1:7 --state etcd://nowhere", "--state"},
           {"--insecure --listen 127.0.0.1:0 --state etcd://127.0.0.1:1", "--listen"},
           {"--insecure --listen 127.0.0.1:7 --state etcd://10.0.0.7:2379", "10.0.0.7:2379"},
           {"--insecure --listen 127.0.0.1:7 --state etcd://127.0.0.1:1 --advertise 0.0.0.0:7",
            "--advertise"},
           {"--insecure --listen 127.0.0.1:7 --state etcd://127.0.0.1:1 --etcd-cert c.pem",
            "--etcd-ca"},
           {"--insecure --listen 127.0.0.1:7 --state etcd://127.0.0.1:1 --drop-damaged",
            "--drop-damaged"},
           {"--insecure --listen 127.0.0.1:0 --etcd-ca ca.pem", "--state etcd://"}}) {
    Program program(absl::StrSplit(arguments + " --metrics off --audit-log off", ' '));
    EXPECT_EQ(program.AwaitExitCode(), 2) << arguments;
    EXPECT_THAT(program.output(), MatchesRegex("penstock-coordinator: [^\n]*\n"));
    EXPECT_THAT(program.output(), HasSubstr(told)) << arguments;
  }
}

TEST_F(CoordinatorProgramTest, EtcdThatDoesNotAnswer_IsWaitedForAndEndsWithZero) {
  HostPort found;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int listener, OpenListener({"127.0.0.1", 0}, found));
  close(listener);
  Program program({"--listen", found.ToString(), "--insecure", "--metrics", "off", "--audit-log",
                   "off", "--state", "etcd://127.0.0.1:1"});
  program.ReadUntil("cannot ask etcd");
  EXPECT_THAT(program.output(), HasSubstr("127.0.0.1:1"));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.AwaitExitCode(), 0) << program.output();
}

TEST_F(CoordinatorProgramTest, BadCollector_IsOneLineThatNamesTheFlagAndExitCodeTwo) {
  for (const auto& [flags, said] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--otlp", "127.0.0.1:4317"}, "--otlp: \"127.0.0.1:4317\" begins neither with http://"},
           {{"--otlp", "https://h", "--otlp-token-file", "/none"}, "token of the collector: "},
           {{"--otlp", "https://h", "--otlp-ca", "/none"}, "authorities of the collector: "}}) {
    std::vector<std::string> arguments = {"--listen", "127.0.0.1:0", "--insecure", "--metrics",
                                          "off",      "--state",     state_};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    Program program(arguments);
    EXPECT_EQ(program.AwaitExitCode(), 2) << program.output();
    EXPECT_THAT(program.output(), HasSubstr(said));
    EXPECT_FALSE(std::filesystem::exists(state_)) << "it is asked before anything is made";
  }
}

}  // namespace
}  // namespace penstock
