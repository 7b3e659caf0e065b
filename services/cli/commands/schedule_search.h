// penstock schedule search: the best order of a step for given times.
#pragma once

#include "services/cli/command.h"

namespace penstock {

CommandRunner DeclareScheduleSearch(CLI::App& app);

}  // namespace penstock
