// The conformance suite of ops on the first GPU. Where there is none, the tests say so and are skipped by name.
#include "tests/compute/conformance_ops.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, OpConformance, OpsOn({{"Gpu0", [] { return MakeCudaBackend(0); }}}),
                         OpTestName);

// More rows than a grid has bands of 64 for: 65535 of them.
TEST(CudaColumnSums, RowsBeyondAGridOfBands_AreAdded) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(0);
  if (absl::IsUnavailable(backend.status())) {
    GTEST_SKIP() << "not on this machine: " << backend.status().message();
  }
  ASSERT_THAT(backend, IsOk());
  constexpr int64_t kWidth = 2;
  const std::vector<std::pair<std::string, Attributes>> ops = {{"layer_norm", {{"width", kWidth}}},
                                                               {"linear", {{"outputs", kWidth}}}};
  for (const auto& [name, attributes] : ops) {
    const OpCase op_case = {.op = name,
                            .name = "of_many_rows",
                            .attributes = attributes,
                            .inputs = {{.type = {DType::kF32, {64 * 65535 + 1, kWidth}}}}};
    OpPasses passes(**backend, op_case, Precision::kF32);
    const OpResults results = passes.Run();
    const std::vector<float> gradient = passes.GradOutput();
    for (int64_t c = 0; c < kWidth; ++c) {
      double sum = 0.0;
      for (size_t i = c; i < gradient.size(); i += kWidth) sum += gradient[i];
      // The bias, behind the gain or the weight.
      EXPECT_NEAR(results.gradients[1][c], sum, 0.5) << name;
    }
  }
}

}  // namespace
}  // namespace penstock
