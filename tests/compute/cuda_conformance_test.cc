// The conformance suite on the first GPU. Where there is none, the tests say so and are skipped by name.
#include "tests/compute/conformance.h"

namespace penstock {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, BackendConformance,
                         ::testing::Values(BackendCase{"Gpu0", [] { return MakeCudaBackend(0); }}),
                         [](const auto& info) { return info.param.name; });

TEST(CudaBackend, NoSuchDevice_IsUnavailableAndSaysWhy) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(1000);
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kUnavailable) << backend.status();
  EXPECT_FALSE(backend.status().message().empty());
}

}  // namespace
}  // namespace penstock
