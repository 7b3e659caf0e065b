// The commands of the studies: penstock theory, penstock study and penstock compare. The table of commands
// (services/cli/main.cc) has them.
#pragma once

#include "services/cli/command.h"

namespace penstock {

CommandRunner DeclareTheory(CLI::App& app);
CommandRunner DeclareStudy(CLI::App& app);
CommandRunner DeclareCompare(CLI::App& app);

}  // namespace penstock
