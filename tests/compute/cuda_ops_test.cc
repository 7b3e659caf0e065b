// The conformance suite of ops on the first GPU. Where there is none, the tests say so and are skipped by name.
#include "tests/compute/conformance_ops.h"

namespace penstock {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, OpConformance, OpsOn({{"Gpu0", [] { return MakeCudaBackend(0); }}}),
                         OpTestName);

}  // namespace
}  // namespace penstock
