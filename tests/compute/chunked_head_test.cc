// A head with too many logits to keep gives what heads of a part of its rows give, which keep theirs and are compared with
// PyTorch (cpu_ops_test.cc), and its memory does not grow with its rows.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "compute/cpu/cpu_backend.h"
#include "tests/compute/op_case.h"
#include "tests/compute/op_passes.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kVocabulary = 8200;
constexpr int64_t kWidth = 6;
constexpr int64_t kTime = 700;  // a sample's logits can be kept, those of three cannot
constexpr int64_t kSamples = 3;
constexpr int32_t kIgnored = -100;
constexpr int64_t kNoOffset = 0;

OpCase HeadCase(int64_t samples, int64_t time, Attributes more = {}) {
  OpCase head = {.op = "gpt_head",
                 .name = "chunked",
                 .attributes = {{"vocabulary", kVocabulary}, {"width", kWidth}},
                 .inputs = {{.type = {DType::kF32, {time, kWidth}}},
                            {.type = {DType::kI32, {time}}, .below = kVocabulary}},
                 .samples = samples};
  for (const auto& [name, value] : more.entries()) head.attributes.Set(name, value);
  return head;
}

struct Operands {
  std::vector<float> input, weight;
  std::vector<int32_t> targets;
};

Operands MakeOperands(bool with_ignored) {
  RandomStream random(17, 3);
  const auto numbers = [&](int64_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random.Below(2001)) / 1000.0f - 1.0f;
    return values;
  };
  Operands operands = {.input = numbers(kSamples * kTime * kWidth),
                       .weight = numbers(kVocabulary * kWidth),
                       .targets = std::vector<int32_t>(kSamples * kTime)};
  for (size_t row = 0; row < operands.targets.size(); ++row) {
    const bool is_ignored = with_ignored && row % 5 < row / kTime;  // a part that differs by sample
    operands.targets[row] = is_ignored ? kIgnored : static_cast<int32_t>(random.Below(kVocabulary));
  }
  return operands;
}

struct Results {
  double loss = 0.0;
  std::vector<float> grad_input, grad_weight;
  std::vector<int32_t> ranks;
};

// All passes over samples `first` .. `first` + `samples` of the operands.
Results RunHead(const OpCase& head, const Operands& operands, int64_t first, float loss_scale) {
  const auto backend = *MakeCpuBackend(2);
  const Node node = head.MakeNode();
  const auto kernels = *backend->MakeKernels(
      {.node = node, .inputs = head.InputTypes(), .samples = head.samples}, Precision::kF32);
  const TapeNeeds needs = kernels->tape_needs();
  const int64_t rows = head.samples * kTime;
  const auto block = [](int64_t bytes) { return std::vector<double>(bytes / 8 + 8, NAN); };
  std::vector<double> stash = block(needs.stash_bytes), kept = block(needs.kept_bytes),
                      weight_stash = block(needs.weight_stash_bytes);
  Results results = {.grad_input = std::vector<float>(rows * kWidth, NAN),
                     .grad_weight = std::vector<float>(kVocabulary * kWidth, 0.5f),
                     .ranks = std::vector<int32_t>(rows)};
  float loss = NAN;
  Tape tape;
  tape.inputs = {operands.input.data() + first * kTime * kWidth,
                 operands.targets.data() + first * kTime};
  tape.output = &loss;
  tape.stash = stash.data();
  tape.kept = kept.data();
  tape.weight_stash = weight_stash.data();
  tape.grad_inputs = {results.grad_input.data()};
  tape.loss_scale = loss_scale;
  tape.ranks = results.ranks.data();
  const WeightView weights = {.f32 = operands.weight.data(), .offsets = &kNoOffset};
  EXPECT_THAT(kernels->Forward({}, weights, tape), IsOk());
  EXPECT_THAT(kernels->BackwardInput({}, weights, tape), IsOk());
  EXPECT_THAT(kernels->BackwardWeight({}, {results.grad_weight.data(), &kNoOffset}, tape), IsOk());
  results.loss = loss;
  return results;
}

// As a part of the largest of `b`; NaN if a difference is.
double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0.0, scale = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
    scale = std::max(scale, static_cast<double>(std::abs(b[i])));
  }
  return largest / scale;
}

void ExpectSumOfParts(const Attributes& more, bool with_ignored) {
  const Operands operands = MakeOperands(with_ignored);
  const Results whole = RunHead(HeadCase(kSamples, kTime, more), operands, 0, 1.0f);
  const auto valid = [&](int64_t first, int64_t samples) {
    const auto begin = operands.targets.begin() + first * kTime;
    return static_cast<double>(samples * kTime -
                               std::count(begin, begin + samples * kTime, kIgnored));
  };
  Results parts = {.grad_weight = std::vector<float>(kVocabulary * kWidth, 0.5f)};
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    const double part = valid(sample, 1) / valid(0, kSamples);
    const Results one =
        RunHead(HeadCase(1, kTime, more), operands, sample, static_cast<float>(part));
    parts.loss += part * one.loss;
    parts.grad_input.insert(parts.grad_input.end(), one.grad_input.begin(), one.grad_input.end());
    parts.ranks.insert(parts.ranks.end(), one.ranks.begin(), one.ranks.end());
    for (size_t i = 0; i < one.grad_weight.size(); ++i) {
      parts.grad_weight[i] += one.grad_weight[i] - 0.5f;
    }
  }
  EXPECT_NEAR(whole.loss, parts.loss, 1e-6 * parts.loss);
  EXPECT_LT(LargestDifference(whole.grad_input, parts.grad_input), 1e-5);
  EXPECT_LT(LargestDifference(whole.grad_weight, parts.grad_weight), 1e-5);
  EXPECT_EQ(whole.ranks, parts.ranks);
}

TEST(ChunkedHead, GivesTheSumOfParts) { ExpectSumOfParts({}, false); }

TEST(ChunkedHead, WithIgnoredTargets_GivesTheSumOfParts) {
  ExpectSumOfParts({{"ignore", int64_t{kIgnored}}}, true);
}

TEST(ChunkedHead, WithSmoothLabels_GivesTheSumOfParts) {
  ExpectSumOfParts({{"ignore", int64_t{kIgnored}}, {"label_smoothing", 0.1}}, true);
}

// Poisoned memory between the passes, and products of bf16.
TEST(ChunkedHead, InBf16_IsNearThatInF32) {
  const auto backend = *MakeCpuBackend(1);
  const OpCase head = HeadCase(kSamples, kTime);
  const OpResults f32 = OpPasses(*backend, head, Precision::kF32).Run();
  const OpResults bf16 = OpPasses(*backend, head, Precision::kBf16).Run();
  EXPECT_NEAR(bf16.output[0], f32.output[0], 1e-3 * f32.output[0]);
  EXPECT_LT(LargestDifference(bf16.grad_inputs[0], f32.grad_inputs[0]), 0.02);
  EXPECT_LT(LargestDifference(bf16.gradients[0], f32.gradients[0]), 0.02);
}

TEST(ChunkedHead, ItsMemory_DoesNotGrowWithItsRows) {
  const auto backend = *MakeCpuBackend(1);
  const auto needs = [&](int64_t time, bool frozen) {
    const OpCase head = HeadCase(kSamples, time);
    Node node = head.MakeNode();
    node.parameters[0].frozen = frozen;
    backend->TakeScratchNeeds();
    const auto kernels = *backend->MakeKernels(
        {.node = node, .inputs = head.InputTypes(), .samples = kSamples}, Precision::kF32);
    const TapeNeeds tape = kernels->tape_needs();
    return std::vector<int64_t>{tape.stash_bytes, tape.kept_bytes, tape.weight_stash_bytes,
                                backend->TakeScratchNeeds().of_pass};
  };
  const std::vector<int64_t> short_needs = needs(kTime, false);
  EXPECT_EQ(short_needs, needs(8 * kTime, false));
  EXPECT_EQ(short_needs[0] + short_needs[1], 0);
  EXPECT_EQ(short_needs[2], (kVocabulary * kWidth * 4 + 63) / 64 * 64);
  EXPECT_LT(short_needs[3], 17 << 20) << "logits of a chunk";
  EXPECT_EQ(needs(kTime, true)[2], 0) << "nobody asks for the gradient of a frozen weight";
}

}  // namespace
}  // namespace penstock
