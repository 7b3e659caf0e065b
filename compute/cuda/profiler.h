// Named ranges that NVIDIA's profilers show above the kernels. nvtx.cc tells them, where the toolkit has
// NVTX's headers; else no_nvtx.cc, which does nothing. Chosen in CMakeLists.txt.
//
// Without a profiler a range costs a few nanoseconds. Any thread; ranges of one thread nest.
#pragma once

namespace penstock::cuda {

void BeginProfilerRange(const char* name);
void EndProfilerRange();

}  // namespace penstock::cuda
