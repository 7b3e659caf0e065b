// The conformance suite on the CPU, with one thread and with several.
#include "tests/compute/conformance.h"

namespace penstock {
namespace {

std::vector<BackendCase> CpuCases() {
  std::vector<BackendCase> cases = {{"OneThread", [] { return MakeCpuBackend(1); }}};
#if !defined(__SANITIZE_THREAD__)
  // ThreadSanitizer cannot see how OpenMP's threads wait for each other.
  cases.push_back({"ThreeThreads", [] { return MakeCpuBackend(3); }});
#endif
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformance, ::testing::ValuesIn(CpuCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
