// Compiled once, for the instruction set every machine has.
#include "compute/cpu/kernels/best.h"

#include "compute/cpu/kernels/tables.h"

namespace penstock {

#if defined(__x86_64__)
std::vector<const Kernels*> SupportedKernels() {
  std::vector<const Kernels*> tables = {&baseline::kKernels};
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx2) {
    tables.insert(tables.begin(), &avx2::kKernels);
  }
  if (has_avx512) {
    tables.insert(tables.begin(), &avx512::kKernels);
  }
  return tables;
}
#else
std::vector<const Kernels*> SupportedKernels() { return {&baseline::kKernels}; }
#endif

}  // namespace penstock
