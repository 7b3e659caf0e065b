// Compiled once, for the instruction set every machine has. The namespaces are those of CMakeLists.txt.
#include "compute/cpu/kernels/kernels.h"

namespace penstock {

namespace baseline {
extern const Kernels kKernels;
}

#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

const Kernels& BestKernels() {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd")) {
    return avx512::kKernels;
  }
  return has_avx2 ? avx2::kKernels : baseline::kKernels;
}
#else
const Kernels& BestKernels() { return baseline::kKernels; }
#endif

}  // namespace penstock
