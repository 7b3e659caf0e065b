// Completion scripts: commands, verbs, flags and the values that are known; files elsewhere.
//
// Pure functions.
#pragma once

#include <string>

#include "services/cli/command_text.h"

namespace penstock {

// `program`: the whole command line. To be read by the shell at its start, as `source <(penstock completion bash)`.
std::string BashCompletion(const CommandText& program);
// Makes the script for zsh, through its emulation of bash, after `compinit`.
std::string ZshCompletion(const CommandText& program);
std::string FishCompletion(const CommandText& program);

}  // namespace penstock
