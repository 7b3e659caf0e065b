// docs/cli.md and `--help` say the same: every command and flag of the program stands in the manual.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/services/cli/process.h"

namespace penstock {
namespace {

std::string Manual() {
  std::ifstream file(std::string(PENSTOCK_SOURCE_DIR) + "/docs/cli.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The section of a command, or an empty string.
std::string Section(const std::string& manual, const std::string& command) {
  const size_t start = manual.find("\n## penstock " + command + "\n");
  if (start == std::string::npos) return "";
  return manual.substr(start, manual.find("\n## ", start + 1) - start);
}

std::string Help(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), Program("penstock"));
  arguments.push_back("--help");
  const ProcessResult result = RunProcess(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

// The first word of each line that is indented by two spaces and belongs to a list of subcommands.
std::vector<std::string> Commands(const std::string& help) {
  std::vector<std::string> commands;
  const std::regex line("\n  ([a-z]+)  +[A-Z]");
  for (std::sregex_iterator it(help.begin(), help.end(), line), end; it != end; ++it) {
    commands.push_back((*it)[1]);
  }
  return commands;
}

std::set<std::string> Flags(const std::string& help) {
  std::set<std::string> flags;
  const std::regex flag("\n  (?:-[a-z],)?(--[a-z-]+)");
  for (std::sregex_iterator it(help.begin(), help.end(), flag), end; it != end; ++it) {
    flags.insert((*it)[1]);
  }
  return flags;
}

TEST(ManualTest, EveryCommandAndFlag_IsDocumented) {
  const std::string manual = Manual();
  const std::vector<std::string> commands = Commands(Help({}));
  ASSERT_GE(commands.size(), 14u);
  for (const std::string& command : commands) {
    const std::string section = Section(manual, command);
    EXPECT_NE(section, "") << "docs/cli.md has no section \"## penstock " << command << "\"";
    std::set<std::string> flags = Flags(Help({command}));
    EXPECT_TRUE(flags.count("--help")) << command;
    if (command == "schedule") {
      flags.merge(Flags(Help({"schedule", "show"})));
      flags.merge(Flags(Help({"schedule", "verify"})));
    }
    for (const std::string& flag : flags) {
      const bool common = manual.find("\n| `" + flag) != std::string::npos &&
                          (command == "train" || command == "submit");
      const bool always = flag == "--help" || flag == "--coordinator" || flag == "--json";
      EXPECT_TRUE(section.find(flag) != std::string::npos || common || always)
          << "docs/cli.md does not say what " << flag << " of " << command << " does";
    }
  }
}

TEST(ManualTest, EveryFlagOfTheManual_Exists) {
  std::set<std::string> known = Flags(Help({}));
  for (const std::string& command : Commands(Help({}))) known.merge(Flags(Help({command})));
  known.merge(Flags(Help({"schedule", "show"})));
  known.merge(Flags(Help({"schedule", "verify"})));
  const std::string manual = Manual();
  const std::regex flag("[`( ](--[a-z-]+)");
  for (std::sregex_iterator it(manual.begin(), manual.end(), flag), end; it != end; ++it) {
    EXPECT_TRUE(known.count((*it)[1])) << "docs/cli.md speaks of " << (*it)[1];
  }
}

}  // namespace
}  // namespace penstock
