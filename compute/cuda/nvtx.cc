#include <nvtx3/nvToolsExt.h>

#include "compute/cuda/profiler.h"

namespace penstock::cuda {

void BeginProfilerRange(const char* name) { (void)nvtxRangePushA(name); }
void EndProfilerRange() { (void)nvtxRangePop(); }

}  // namespace penstock::cuda
