#include "services/cli/supervisor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "services/coordinator/directory_lock.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr char kShell[] = "/bin/sh";

// Looks again and again until `condition` holds; gives up after ten seconds.
bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

bool IsGone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

std::vector<std::string> Shell(const std::string& script) { return {kShell, "-c", script}; }

std::vector<WorkerExit> AwaitExits(Supervisor& supervisor, size_t count) {
  std::vector<WorkerExit> exits;
  Eventually([&] {
    auto more = supervisor.TakeExits();
    EXPECT_THAT(more, IsOk());
    if (!more.ok()) return true;
    exits.insert(exits.end(), more->begin(), more->end());
    return exits.size() >= count;
  });
  return exits;
}

class SupervisorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Orphans of a killed command line come to us instead of to a distant init.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    directory_ = std::filesystem::temp_directory_path() /
                 ("penstock-supervisor-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
};

TEST_F(SupervisorTest, Spawn_ProgramThatEnds_IsReportedWithCodeAndOutput) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(2));
  ASSERT_THAT(supervisor->Spawn(1, Shell("echo out; echo err >&2; exit 3"), {}), IsOk());
  const std::vector<WorkerExit> exits = AwaitExits(*supervisor, 1);
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].worker, 1);
  EXPECT_EQ(exits[0].ToString(), "exited with code 3");
  EXPECT_EQ(supervisor->LogTail(1, 1000), "out\nerr\n");
  EXPECT_EQ(supervisor->LogTail(0, 1000), "");
}

TEST_F(SupervisorTest, LogTail_LongLog_StartsWithAWholeLine) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  ASSERT_THAT(supervisor->Spawn(0, Shell("seq 1000 2000"), {}), IsOk());
  AwaitExits(*supervisor, 1);
  EXPECT_EQ(supervisor->LogTail(0, 12), "1999\n2000\n");
}

TEST_F(SupervisorTest, Spawn_KilledProgram_IsReportedWithSignal) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const pid_t pid,
                                supervisor->Spawn(0, Shell("exec sleep 1000"), {}));
  kill(pid, SIGKILL);
  const std::vector<WorkerExit> exits = AwaitExits(*supervisor, 1);
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].ToString(), "was killed by signal 9 (Killed)");
}

TEST_F(SupervisorTest, Spawn_MissingProgram_IsNotFound) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  EXPECT_THAT(supervisor->Spawn(0, {"/no/such/program"}, {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such/program")));
}

TEST_F(SupervisorTest, Spawn_Environment_ReachesTheProgram) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  ASSERT_THAT(supervisor->Spawn(0, Shell("echo $OMP_NUM_THREADS"), {"OMP_NUM_THREADS=7"}), IsOk());
  AwaitExits(*supervisor, 1);
  EXPECT_EQ(supervisor->LogTail(0, 100), "7\n");
}

TEST_F(SupervisorTest, Spawn_Program_HoldsNoDescriptorOfTheCommandLine) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);  // inheritable on purpose
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  ASSERT_THAT(supervisor->Spawn(0, Shell("cat"), {}), IsOk());
  close(pipe_ends[1]);
  char byte = 0;
  EXPECT_EQ(read(pipe_ends[0], &byte, 1), 0) << "a descendant still holds the pipe open";
  close(pipe_ends[0]);
}

TEST_F(SupervisorTest, Stop_WithGrace_LetsWorkersEndByThemselves) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  const std::string done = directory_ / "done";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const pid_t pid,
                                supervisor->Spawn(0,
                                                  Shell("trap 'touch " + done +
                                                        "; exit 0' TERM; echo ready; "
                                                        "while :; do sleep 0.05; done"),
                                                  {}));
  ASSERT_TRUE(Eventually([&] { return supervisor->LogTail(0, 100) == "ready\n"; }));
  supervisor->Stop(absl::Seconds(10));
  EXPECT_TRUE(std::filesystem::exists(done));
  EXPECT_TRUE(IsGone(pid));
}

TEST_F(SupervisorTest, Stop_WorkerThatIgnoresSigterm_IsKilledAfterTheGrace) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const pid_t pid,
      supervisor->Spawn(0, Shell("trap '' TERM; echo ready; while :; do sleep 0.05; done"), {}));
  ASSERT_TRUE(Eventually([&] { return supervisor->LogTail(0, 100) == "ready\n"; }));
  supervisor->Stop(absl::Milliseconds(100));
  EXPECT_TRUE(IsGone(pid));
  EXPECT_THAT(supervisor->TakeExits(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("")));
}

TEST_F(SupervisorTest, Stop_SweepsUnfinishedCheckpointsAndNothingElse) {
  const std::filesystem::path unfinished = StagingPath(directory_, 1, "job");
  std::filesystem::create_directories(unfinished);
  std::ofstream(unfinished / "layer") << "half a layer";
  std::filesystem::create_directories(directory_ / "step-0");
  std::ofstream(directory_ / "notes.tmp-mine") << "a user's own";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  ASSERT_THAT(supervisor->SweepAtEnd(directory_), IsOk());
  supervisor->Stop(absl::ZeroDuration());
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, UnorderedElementsAre(DirectoryLock::kFileName, "notes.tmp-mine", "step-0"));
}

TEST_F(SupervisorTest, Stop_DirectoryThatAnotherHolds_IsLeftAlone) {
  const std::filesystem::path of_the_other = StagingPath(directory_, 1, "other");
  std::filesystem::create_directories(of_the_other);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  ASSERT_THAT(supervisor->SweepAtEnd(directory_), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto lock, DirectoryLock::Take(directory_));
  supervisor->Stop(absl::ZeroDuration());
  EXPECT_TRUE(std::filesystem::exists(of_the_other));
}

// Becomes a command line with two workers, says their pids and its supervisor's, and waits for its end.
[[noreturn]] void BeCommandLine(const std::string& directory, int report) {
  auto supervisor = Supervisor::Fork(2);
  if (!supervisor.ok()) _exit(1);
  (void)(*supervisor)->SweepAtEnd(directory);
  for (int worker = 0; worker < 2; ++worker) {
    const auto pid = (*supervisor)->Spawn(worker, Shell("trap '' TERM; exec sleep 1000"), {});
    if (!pid.ok() || write(report, &*pid, sizeof *pid) != sizeof *pid) _exit(1);
  }
  for (;;) pause();
}

TEST_F(SupervisorTest, CommandLineKilled_NothingIsLeft) {
  const std::filesystem::path unfinished = StagingPath(directory_, 1, "job");
  std::filesystem::create_directories(unfinished);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t command_line = fork();
  ASSERT_GE(command_line, 0);
  if (command_line == 0) BeCommandLine(directory_, pipe_ends[1]);
  pid_t workers[2] = {};
  ASSERT_EQ(read(pipe_ends[0], &workers[0], sizeof(pid_t)), ssize_t{sizeof(pid_t)});
  ASSERT_EQ(read(pipe_ends[0], &workers[1], sizeof(pid_t)), ssize_t{sizeof(pid_t)});
  kill(command_line, SIGKILL);
  EXPECT_EQ(waitpid(command_line, nullptr, 0), command_line);
  // The supervisor is now our child; it ends once its workers have.
  EXPECT_TRUE(Eventually([] { return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }));
  for (const pid_t worker : workers) EXPECT_TRUE(IsGone(worker));
  EXPECT_FALSE(std::filesystem::exists(unfinished));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(SupervisorTest, SupervisorKilled_WorkersGoWithIt) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const pid_t worker,
                                supervisor->Spawn(0, Shell("echo $PPID; exec sleep 1000"), {}));
  ASSERT_TRUE(Eventually([&] { return !supervisor->LogTail(0, 100).empty(); }));
  kill(std::stoi(supervisor->LogTail(0, 100)), SIGKILL);
  EXPECT_TRUE(Eventually([&] {
    waitpid(worker, nullptr, WNOHANG);  // the orphan is ours to reap
    return IsGone(worker);
  }));
  EXPECT_THAT(supervisor->TakeExits(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gone")));
}

TEST_F(SupervisorTest, ParentFd_EndsWithTheSupervisor) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Fork(1));
  const std::string done = directory_ / "done";
  // The shell waits for the end of the file, in a session of its own: no signal reaches it.
  ASSERT_THAT(
      supervisor->Spawn(
          0, Shell("setsid sh -c 'cat <&{parent-fd}; touch " + done + "' & echo started; wait"),
          {}),
      IsOk());
  ASSERT_TRUE(Eventually([&] { return supervisor->LogTail(0, 100) == "started\n"; }));
  supervisor->Stop(absl::ZeroDuration());
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(done); }));
}

}  // namespace
}  // namespace penstock
