// Tunes how a process that streams tensors keeps its memory.
#pragma once

namespace penstock {

// Makes malloc keep what is freed instead of giving it back to the system. gRPC takes and frees
// megabytes for every read; with the C library's defaults each comes as fresh pages that the kernel
// first clears. main() calls it.
void KeepFreedMemory();

// Gives all that is freed back to the system now: when much was, and will not be wanted soon.
void ReturnFreedMemory();

}  // namespace penstock
