// Counts the allocations of the program, for tests of what must not allocate.
#pragma once

#include <cstdint>

namespace penstock {

// Calls of operator new so far, of all threads.
int64_t AllocationCount();

}  // namespace penstock
