// The conformance suite on the CPU, with one thread and with several.
#include "tests/compute/conformance.h"

namespace penstock {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Cpu, BackendConformance,
    ::testing::Values(BackendCase{"OneThread", [] { return MakeCpuBackend(1); }},
                      BackendCase{"ThreeThreads", [] { return MakeCpuBackend(3); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
