// What a stage keeps: weight versions that wait on the host, and the bytes it says that its passes take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/stage.h"
#include "tests/compute/conformance.h"
#include "tests/compute/two_pools.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr BatchShape kBatch = {2, 20};

// The middle of PipeDream's first stage: F of microbatch m reads the newest version, I and W of microbatch
// m - lag the version of its F, and every W is followed by a step. Returns the digests of the weights.
struct Pipedream {
  std::vector<std::string> digests;
  std::vector<std::vector<float>> gradients;  // of the input, by microbatch
  Stage::MemoryStats memory;
  int64_t pool_peak_bytes = 0;
};

StageOptions MiddleStage(StashPlace stash, Precision precision, int64_t lag) {
  StageOptions options;
  options.layers = {1, 4};
  options.batch = kBatch;
  options.precision = precision;
  options.stash = stash;
  options.optimizer = AdamWConfig{};
  options.versions_max = lag + 1;
  options.microbatches_in_flight_max = lag + 1;
  return options;
}

Tensor Wave(Backend& backend, int64_t seed) {
  Tensor tensor = backend.pool().AcquireTensor(DType::kF32, {2, 20, 36});
  for (int64_t i = 0; i < tensor.shape.elements(); ++i) {
    tensor.data<float>()[i] = std::sin(static_cast<float>(i * (seed + 1)));
  }
  return tensor;
}

Pipedream Train(Backend& backend, const StageOptions& options, int64_t microbatches) {
  const ModelGraph model = *BuildGpt(TinyGpt());
  const auto stage = *Stage::Create(backend, model, options);
  stage->InitializeWeights();
  const int64_t lag = options.versions_max - 1;
  const std::vector<float> ones(options.layers.count, 1.0f);
  std::deque<int64_t> versions;  // of microbatches in flight
  Pipedream result;
  int64_t done = 0;
  for (int64_t m = 0; m < microbatches; ++m) {
    versions.push_back(stage->version());
    EXPECT_THAT(stage->Forward(MicrobatchId(m), 2 * m, versions.back(), Wave(backend, m), Tensor()),
                IsOk());
    if (static_cast<int64_t>(versions.size()) <= lag) continue;
    const int64_t version = versions.front();
    versions.pop_front();
    absl::StatusOr<Tensor> gradient =
        stage->BackwardInput(MicrobatchId(done), version, Wave(backend, 100 + done), 1.0f);
    EXPECT_THAT(gradient, IsOk());
    if (!gradient.ok()) return result;
    const float* values = gradient->data<float>();
    result.gradients.emplace_back(values, values + gradient->shape.elements());
    EXPECT_THAT(stage->BackwardWeight(MicrobatchId(done)), IsOk());
    ++done;
    Stage::StepOptions step;
    step.learning_rate = 1e-2;
    step.gradient_scales = ones;
    step.keep_replaced = !versions.empty() && versions.back() == stage->version();
    step.oldest_live_version = versions.empty() ? stage->version() + 1 : versions.front();
    EXPECT_THAT(stage->Step(stage->version() + 1, step), IsOk());
  }
  result.digests = stage->LayerDigests();
  result.memory = stage->memory();
  result.pool_peak_bytes = backend.pool().stats().bytes_peak;
  return result;
}

TEST(HostStash, WhereHostAndDeviceAreOne_ChangesNothing) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const auto backend = *MakeCpuBackend(1);
    const Pipedream kept = Train(*backend, MiddleStage(StashPlace::kDevice, precision, 3), 12);
    const int64_t allocations = backend->pool().stats().allocations;
    const Pipedream stashed = Train(*backend, MiddleStage(StashPlace::kHost, precision, 3), 12);
    EXPECT_EQ(stashed.digests, kept.digests);
    EXPECT_EQ(stashed.gradients, kept.gradients);
    EXPECT_EQ(backend->pool().stats().allocations, allocations) << "no copy of its own";
  }
}

TEST(HostStash, OnADeviceWithMemoryOfItsOwn_GivesTheSameBits) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    for (const int64_t lag : {1, 2, 3, 6}) {
      SCOPED_TRACE(lag);
      const auto cpu = *MakeCpuBackend(1);
      const Pipedream kept = Train(*cpu, MiddleStage(StashPlace::kDevice, precision, lag), 20);
      TwoPools device;
      const Pipedream stashed = Train(device, MiddleStage(StashPlace::kHost, precision, lag), 20);
      EXPECT_EQ(stashed.digests, kept.digests);
      EXPECT_EQ(stashed.gradients, kept.gradients);
      const bool worth_it = lag + 1 > HostStash::kDeviceVersionsMax;
      EXPECT_EQ(device.copies_to_host > 0, worth_it);
      EXPECT_EQ(device.copies_to_device > 0, worth_it);
    }
  }
}

TEST(HostStash, OfManyVersions_LeavesThreeOnTheDevice) {
  TwoPools device;
  const Pipedream stashed = Train(device, MiddleStage(StashPlace::kHost, Precision::kF32, 6), 20);
  TwoPools other;
  const Pipedream kept = Train(other, MiddleStage(StashPlace::kDevice, Precision::kF32, 6), 20);
  EXPECT_EQ(kept.memory.weight_bytes, 7 * kept.memory.version_bytes);
  EXPECT_EQ(kept.memory.host_stash_bytes, 0);
  EXPECT_LE(stashed.memory.weight_bytes,
            HostStash::kDeviceVersionsMax * stashed.memory.version_bytes);
  EXPECT_EQ(kept.pool_peak_bytes - stashed.pool_peak_bytes, 4 * kept.memory.version_bytes);
  EXPECT_GE(stashed.memory.host_stash_bytes, 4 * stashed.memory.version_bytes);
}

TEST(HostStash, InTheSteadyState_TakesNoMemoryFromTheSource) {
  TwoPools device;
  Train(device, MiddleStage(StashPlace::kHost, Precision::kBf16, 4), 12);
  const int64_t on_device = device.pool().stats().allocations;
  const int64_t on_host = device.host_pool().stats().allocations;
  Train(device, MiddleStage(StashPlace::kHost, Precision::kBf16, 4), 40);
  EXPECT_EQ(device.pool().stats().allocations, on_device);
  EXPECT_EQ(device.host_pool().stats().allocations, on_host);
}

// Each pass by itself, on every cut of the model: the pool must say what the stage said.
class ActivationBytesTest : public ::testing::TestWithParam<std::tuple<Precision, bool>> {
 protected:
  Precision precision() const { return std::get<0>(GetParam()); }
  bool recomputes() const { return std::get<1>(GetParam()); }
};

TEST_P(ActivationBytesTest, OfEveryPass_AreThoseOfThePool) {
  GptConfig config = TinyGpt();
  config.dropout = 0.1;
  const ModelGraph model = *BuildGpt(config);
  for (int first = 0; first < model.size(); ++first) {
    for (int count = 1; first + count <= model.size(); ++count) {
      SCOPED_TRACE(testing::Message() << "layers " << first << " to " << first + count - 1);
      const auto backend = *MakeCpuBackend(1);
      BufferPool& pool = backend->pool();
      StageOptions options;
      options.layers = {first, count};
      options.batch = kBatch;
      options.precision = precision();
      options.recomputes = recomputes();
      const auto stage = *Stage::Create(*backend, model, options);
      stage->InitializeWeights();
      const Tokens tokens = TokensOf(0, kBatch, model.vocabulary);
      const ActivationBytes& said = stage->activation_bytes();

      int64_t before = pool.stats().bytes_in_use;
      const auto expect = [&](const PassBytes& bytes) {
        EXPECT_EQ(pool.stats().bytes_in_use - before, bytes.left);
        before = pool.stats().bytes_in_use;
      };
      Tensor received;
      if (!stage->has_embedding()) {
        received = Wave(*backend, 1);
        EXPECT_EQ(pool.stats().bytes_in_use - before, said.boundary);
        before = pool.stats().bytes_in_use;
      }
      Tensor output;
      {
        const Tensor input =
            stage->has_embedding() ? *stage->TokensToDevice("token", tokens.ids) : received;
        received = Tensor();
        const Tensor targets =
            stage->has_head() ? *stage->TokensToDevice("target", tokens.targets) : Tensor();
        output = *stage->Forward(MicrobatchId(0), 0, 0, input, targets);
        if (!recomputes()) {
          EXPECT_EQ(pool.stats().bytes_in_use - before, said.forward.most);
        }
      }
      expect(said.forward);
      if (recomputes()) {
        // The output is on its way to the next stage by now.
        if (!stage->has_head()) output = Tensor();
        before = pool.stats().bytes_in_use;
        const Tensor targets =
            stage->has_head() ? *stage->TokensToDevice("target", tokens.targets) : Tensor();
        ASSERT_THAT(stage->Recompute(MicrobatchId(0), 0, targets), IsOk());
        EXPECT_EQ(pool.stats().bytes_in_use - before,
                  said.recompute.left + (targets ? BufferPool::BlockBytes(targets.shape.elements() *
                                                                          SizeOf(DType::kI32))
                                                 : 0));
      }
      before = pool.stats().bytes_in_use;

      if (!stage->has_head()) {
        received = Wave(*backend, 2);
        before = pool.stats().bytes_in_use;
      }
      {
        const Tensor grad_output = std::move(received);
        received = *stage->BackwardInput(MicrobatchId(0), 0, grad_output, 1.0f);
      }
      if (stage->has_head()) output = Tensor();
      expect(said.backward_input);
      output = Tensor();
      received = Tensor();
      before = pool.stats().bytes_in_use;
      ASSERT_THAT(stage->BackwardWeight(MicrobatchId(0)), IsOk());
      expect(said.backward_weight);
      // All that was taken is back: what came in and what went out are of one size.
      EXPECT_EQ(said.forward.left + said.recompute.left + said.backward_input.left +
                    said.backward_weight.left,
                0);
    }
  }
}

TEST_P(ActivationBytesTest, AtMost_IsThePeakOfThePool) {
  const ModelGraph model = *BuildGpt(TinyGpt());
  const auto backend = *MakeCpuBackend(1);
  BufferPool& pool = backend->pool();
  StageOptions options;
  options.layers = {0, model.size()};
  options.batch = kBatch;
  options.precision = precision();
  options.recomputes = recomputes();
  const auto stage = *Stage::Create(*backend, model, options);
  stage->InitializeWeights();
  const int64_t start = pool.stats().bytes_in_use;
  ASSERT_EQ(pool.stats().bytes_peak, start) << "making the stage took more for a while";
  const Tokens tokens = TokensOf(0, kBatch, model.vocabulary);
  const ActivationBytes& said = stage->activation_bytes();
  {
    const Tensor input = *stage->TokensToDevice("token", tokens.ids);
    const Tensor targets = *stage->TokensToDevice("target", tokens.targets);
    ASSERT_THAT(stage->Forward(MicrobatchId(0), 0, 0, input, targets), IsOk());
  }
  EXPECT_EQ(pool.stats().bytes_peak - start, said.forward.most);
  int64_t most = said.forward.most;
  // The loss was dropped already.
  int64_t left = said.forward.left - BufferPool::BlockBytes(SizeOf(DType::kF32));
  if (recomputes()) {
    const Tensor targets = *stage->TokensToDevice("target", tokens.targets);
    ASSERT_THAT(stage->Recompute(MicrobatchId(0), 0, targets), IsOk());
    most = std::max(most, left + said.recompute.most);
    left += said.recompute.left;
    EXPECT_EQ(pool.stats().bytes_peak - start, most);
  }
  ASSERT_THAT(stage->BackwardInput(MicrobatchId(0), 0, Tensor(), 1.0f), IsOk());
  EXPECT_EQ(pool.stats().bytes_peak - start, std::max(most, left + said.backward_input.most));
}

INSTANTIATE_TEST_SUITE_P(Precisions, ActivationBytesTest,
                         ::testing::Combine(::testing::Values(Precision::kF32, Precision::kBf16),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return absl::StrCat(
                               std::get<0>(info.param) == Precision::kF32 ? "F32" : "Bf16",
                               std::get<1>(info.param) ? "Recomputing" : "");
                         });

}  // namespace
}  // namespace penstock
