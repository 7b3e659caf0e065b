// How much of the host's memory this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace penstock {

// Returns the host's memory, or the least limit of the control groups that this process is in, as containers have
// them (cgroups v2, or the memory controller of v1); 0 if nothing is known. `root`: where proc and sys are, for tests.
int64_t HostMemoryBytes(const std::string& root = "");

}  // namespace penstock
