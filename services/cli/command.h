// Command: one verb of the command line, and how it ends.
//
// A command is a function that declares its options on a CLI11 subcommand and returns what to run once
// they are parsed. main.cc holds the table of all commands.
//
// To add one: commands/<name>.cc with such a function, its declaration in commands.h, a line in
// main.cc, and a section in docs/cli.md, whose box UPDATE_GOLDEN=1 fills (docs_test.cc).
#pragma once

#include <functional>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "services/cli/console.h"

namespace penstock {

// Runs a parsed command. The status decides the exit code (ExitCodeOf) and is printed as the one line
// that says what went wrong.
using CommandRunner = std::function<absl::Status(Console&)>;

struct Command {
  const char* name;
  const char* group;     // heading in `penstock --help`
  const char* summary;   // one line
  const char* examples;  // below its own --help
  CommandRunner (*declare)(CLI::App& app);
};

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,    // it was tried and did not work
  kExitBadInput = 2,  // bad usage or bad input: the same call will never work
  kExitInterrupted = 130,
};

ExitCode ExitCodeOf(const absl::Status& status);

// A job that ended badly, as opposed to a request that was refused. Always kExitFailed.
absl::Status FailedError(absl::string_view message);
// The user asked to stop.
absl::Status InterruptedError(absl::string_view message);

// Parses the arguments, runs the command they name, prints its error if any. Returns the exit code. A command whose
// output could not be written has failed, whatever it did.
int RunCommandLine(absl::Span<const Command> commands, int argc, const char* const* argv,
                   Console& console);

}  // namespace penstock
