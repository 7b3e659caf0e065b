// The conformance suite of ops on the first GPU. Where there is none, the tests say so and are skipped by name.
#include <utility>
#include <vector>

#include "compute/cpu/cpu_backend.h"
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

// More logits than any GPU's cache holds half of, so that the head makes them slice by slice.
TEST(CudaHead, LogitsOfManySlices_GiveWhatTheCpuDoes) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(0);
  if (absl::IsUnavailable(backend.status())) {
    GTEST_SKIP() << "not on this machine: " << backend.status().message();
  }
  ASSERT_THAT(backend, IsOk());
  constexpr int64_t kRows = 2048, kVocabulary = 40'000, kWidth = 16;
  const OpCase head = {.op = "gpt_head",
                       .name = "of_many_slices",
                       .attributes = {{"vocabulary", kVocabulary}, {"width", kWidth}},
                       .inputs = {{.type = {DType::kF32, {kRows, kWidth}}},
                                  {.type = {DType::kI32, {kRows}}, .below = kVocabulary}}};
  const auto cpu = *MakeCpuBackend(2);
  const OpResults expected = OpPasses(*cpu, head, Precision::kF32).Run();
  constexpr std::pair<Precision, double> kErrors[] = {{Precision::kF32, 1e-4},
                                                      {Precision::kBf16, 0.03}};
  for (const auto& [precision, error] : kErrors) {
    const OpResults results = OpPasses(**backend, head, precision).Run();
    EXPECT_NEAR(results.output[0], expected.output[0], 0.1 * error * expected.output[0]);
    EXPECT_LT(LargestDifference(results.grad_inputs[0], expected.grad_inputs[0]), error);
    EXPECT_LT(LargestDifference(results.gradients[0], expected.gradients[0]), error);
  }
}

}  // namespace
}  // namespace penstock
