// PrintJson: the one way JSON leaves the command line.
#pragma once

#include <nlohmann/json.hpp>

#include "services/cli/console.h"

namespace penstock {

// Indented, with a newline at the end. Bytes that are not UTF-8 (text a model made up) become U+FFFD.
void PrintJson(const nlohmann::ordered_json& json, Console& console);

}  // namespace penstock
