// The documents and `--help` say the same: docs/cli.md quotes the help of every command and documents every
// flag of the programs, and the commands of the README run.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/services/cli/job_directory.h"
#include "tests/support/golden.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Flags = std::set<std::string>;

std::string ReadDocument(const std::string& path) {
  std::ifstream file(std::string(PENSTOCK_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The section of the manual under `heading`, or an empty string.
std::string Section(const std::string& heading) {
  const std::string manual = ReadDocument("docs/cli.md");
  const size_t start = manual.find("\n## " + heading + "\n");
  if (start == std::string::npos) return "";
  return manual.substr(start, manual.find("\n## ", start + 1) - start);
}

// The first groups of all matches.
std::vector<std::string> Matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> matches;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    matches.push_back((*it)[1]);
  }
  return matches;
}

Flags FlagsIn(const std::string& text, const std::string& pattern) {
  const std::vector<std::string> matches = Matches(text, pattern);
  return Flags(matches.begin(), matches.end());
}

// Flags that `section` speaks of, in its usage line, its table or anywhere.
Flags DocumentedFlags(const std::string& section) {
  return FlagsIn(section, "[^-a-z](--[a-z][a-z-]*)");
}

Flags Without(const Flags& flags, const Flags& others) {
  Flags left;
  std::set_difference(flags.begin(), flags.end(), others.begin(), others.end(),
                      std::inserter(left, left.end()));
  return left;
}

Flags Both(Flags flags, Flags others) {
  flags.merge(others);
  return flags;
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

// `command`: a program, and perhaps a command of it.
std::string Help(std::vector<std::string> command) {
  command[0] = ProgramPath(command[0]);
  command.push_back("--help");
  const ProcessResult result = RunProcess(command);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

Flags FlagsOf(const std::vector<std::string>& command) {
  return FlagsIn(Help(command), "\n  (?:-[a-z],)?(--[a-z-]+)");
}

// The commands of `penstock`.
std::vector<std::string> Commands() { return Matches(Help({"penstock"}), "\n  ([a-z]+)  +[A-Z]"); }

// The flags of a command of `penstock`, and of its commands.
Flags FlagsOfCommand(const std::string& command) {
  Flags flags = FlagsOf({"penstock", command});
  const std::map<std::string, std::vector<std::string>> verbs = {
      {"model", {"show"}},
      {"schedule", {"show", "verify", "search"}},
      {"certs", {"init", "issue", "rotate", "show"}},
      {"data",
       {"prepare images", "prepare instructions", "prepare pairs", "prepare tokens", "show", "put",
        "list", "remove"}}};
  if (const auto found = verbs.find(command); found != verbs.end()) {
    for (const std::string& verb : found->second) {
      std::vector<std::string> words = Words(verb);
      words.insert(words.begin(), {"penstock", command});
      flags = Both(flags, FlagsOf(words));
    }
  }
  return flags;
}

// The help of a command without the flags that "Security" has for all.
std::string OwnHelp(const std::vector<std::string>& command) {
  const std::vector<std::string> shared = {"  -h,--help ", "  --certificates ", "  --insecure ",
                                           "  --insecure-network "};
  std::string own;
  bool skips = false;
  std::istringstream lines(Help(command));
  for (std::string line; std::getline(lines, line);) {
    const bool continues = line.starts_with("       ");  // the option of the line before
    if (!continues) {
      skips = std::any_of(shared.begin(), shared.end(),
                          [&](const std::string& flag) { return line.starts_with(flag); });
    }
    if (!skips) own += line + "\n";
  }
  return own.erase(own.find_last_not_of('\n') + 1) + "\n";
}

TEST(ManualTest, EveryBox_IsTheHelpOfItsCommand) {
  const std::string manual = ReadDocument("docs/cli.md");
  const std::string mark = "<!-- ", begin = " --help -->\n```text\n", end = "```\n";
  std::string current;
  size_t at = 0;
  for (size_t found; (found = manual.find(begin, at)) != std::string::npos;) {
    const size_t name = manual.rfind(mark, found) + mark.size();
    current += manual.substr(at, found + begin.size() - at) +
               OwnHelp(Words(manual.substr(name, found - name)));
    at = manual.find(end, found + begin.size());
    ASSERT_NE(at, std::string::npos);
  }
  ExpectEqualsSourceFile("docs/cli.md", current + manual.substr(at));
}

TEST(ManualTest, EveryCommand_HasASectionWithItsFlagsAndNoOthers) {
  const Flags always = {"--help"};
  const Flags security_flags = DocumentedFlags(Section("Security"));
  const std::vector<std::string> commands = Commands();
  ASSERT_GE(commands.size(), 14u);
  for (const std::string& command : commands) {
    SCOPED_TRACE("penstock " + command);
    const std::string section = Section("penstock " + command);
    ASSERT_NE(section, "") << "docs/cli.md has no such section";
    Flags documented = Both(DocumentedFlags(section), always);
    const Flags known = FlagsOfCommand(command);
    // Documented once for all who speak to a coordinator.
    if (known.count("--coordinator")) documented = Both(documented, security_flags);
    EXPECT_THAT(Without(known, documented), IsEmpty()) << "are not documented";
    EXPECT_THAT(Without(documented, known), IsEmpty()) << "do not exist";
  }
}

TEST(ManualTest, EveryProgram_HasASectionWithItsFlagsAndNoOthers) {
  for (const char* program : {"penstock-coordinator", "penstock-worker"}) {
    SCOPED_TRACE(program);
    const Flags documented = Both(Both(DocumentedFlags(Section(program)), {"--help"}),
                                  DocumentedFlags(Section("Security")));
    const Flags known = FlagsOf({program});
    ASSERT_GE(known.size(), 5u);
    EXPECT_THAT(Without(known, documented), IsEmpty()) << "are not documented";
    EXPECT_THAT(Without(documented, known), IsEmpty()) << "do not exist";
  }
}

// ------------------------------------------------------------------------------------ README commands

// The lines of the README that call `program`, split into words, without the remarks behind them.
std::vector<std::vector<std::string>> Calls(const std::string& program) {
  std::vector<std::vector<std::string>> calls;
  for (const std::string& line :
       Matches(ReadDocument("README.md"), "\n    (" + program + " [^\n]*?)(?=   |\n)")) {
    calls.push_back(Words(line));
  }
  return calls;
}

// The word after `flag`. REQUIRES: it is there.
std::string& ValueOf(std::vector<std::string>& call, const std::string& flag) {
  const auto at = std::find(call.begin(), call.end(), flag);
  EXPECT_TRUE(at != call.end() && at + 1 != call.end()) << flag;
  return at[1];
}

std::string Port(const std::string& address) { return address.substr(address.rfind(':') + 1); }

// Runs a call of the README on this machine and away from what else runs here, until it says that it
// serves.
void ExpectServes(std::vector<std::string> call, const JobDirectory& directory,
                  const std::string& says) {
  call[0] = ProgramPath(call[0]);
  std::string& certificates = ValueOf(call, "--certificates");
  certificates = directory.path(certificates);
  ValueOf(call, "--listen") = "0.0.0.0:0";
  for (std::string& word : call)
    word = std::regex_replace(word, std::regex("^[A-Z_]+:"), "127.0.0.1:");
  call.insert(call.end(), {"--metrics", "off"});
  Process process(call);
  EXPECT_TRUE(Eventually([&] { return process.err().find(says) != std::string::npos; }))
      << process.err();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(std::chrono::seconds(20)).exit_code, 0);
}

TEST(ReadmeTest, CoordinatorAndWorker_Serve) {
  const JobDirectory directory;
  const ProcessResult made =
      RunProcess({ProgramPath("penstock"), "certs", "init", "-o", directory.path("certificates")});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  for (std::vector<std::string> call : Calls("penstock-coordinator")) {
    ValueOf(call, "--state") = directory.path("state");
    ExpectServes(call, directory, "listens on");
  }
  for (std::vector<std::string> call : Calls("penstock-worker")) {
    ValueOf(call, "--coordinator") = "127.0.0.1:1";
    ValueOf(call, "--data-root") = directory.path();
    ExpectServes(call, directory, "worker ");
  }
}

TEST(ReadmeTest, CoordinatorAndWorker_FitOnOneMachine) {
  std::vector<std::vector<std::string>> coordinators = Calls("penstock-coordinator");
  std::vector<std::vector<std::string>> workers = Calls("penstock-worker");
  ASSERT_THAT(coordinators, SizeIs(1));
  ASSERT_THAT(workers, SizeIs(1));
  const std::string listens = Port(ValueOf(coordinators[0], "--listen"));
  EXPECT_EQ(Port(ValueOf(workers[0], "--coordinator")), listens);
  EXPECT_EQ(Port(ValueOf(workers[0], "--advertise")), Port(ValueOf(workers[0], "--listen")));
  const std::vector<std::string> metrics =
      Matches(Help({"penstock-coordinator"}), "--metrics TEXT=[0-9.]+:([0-9]+)");
  ASSERT_THAT(metrics, SizeIs(1));
  const std::set<std::string> ports = {listens, metrics[0], Port(ValueOf(workers[0], "--listen"))};
  EXPECT_THAT(ports, SizeIs(3)) << "two of them want the same port";
}

TEST(ReadmeTest, CommandLine_KnowsCommandsAndFlags) {
  const std::vector<std::vector<std::string>> calls = Calls("penstock");
  ASSERT_GE(calls.size(), 4u);
  const std::vector<std::string> commands = Commands();
  for (const std::vector<std::string>& call : calls) {
    ASSERT_GE(call.size(), 2u);
    ASSERT_THAT(commands, ::testing::Contains(call[1]));
    const Flags known = FlagsOfCommand(call[1]);
    for (const std::string& word : call) {
      EXPECT_TRUE(!word.starts_with("--") || known.count(word)) << call[1] << " " << word;
    }
  }
}

}  // namespace
}  // namespace penstock
