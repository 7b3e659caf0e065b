// CountingAllocator: replaces operator new and the C library's allocation functions of the program it is
// linked into, and counts their calls between Start and Stop, in all threads.
//
// What oneDNN allocates inside its own calls (argument tables, scratch for small products) is its affair
// and is left out, by the address of the caller.
//
// Thread safety: Start and Stop from any thread.
#pragma once

#include <cstdint>

namespace penstock {

// False where a sanitizer owns malloc: nothing is replaced then.
bool CountsAllocations();
void StartCountingAllocations();
void StopCountingAllocations();
// Since the last start.
int64_t CountedAllocations();

}  // namespace penstock
