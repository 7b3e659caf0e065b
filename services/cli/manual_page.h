// The manual page, in the language of man(7).
//
// A pure function.
#pragma once

#include <string>

#include "services/cli/command_text.h"

namespace penstock {

std::string ManualPage(const CommandText& program, const std::string& version);

}  // namespace penstock
