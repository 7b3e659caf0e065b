// What a stage keeps: weight versions that wait on the host, and the bytes it says that its passes take.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/offload_store.h"
#include "compute/stage.h"
#include "tests/compute/conformance.h"
#include "tests/compute/skip_model.h"
#include "tests/compute/two_pools.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kSamples = 2;

// The middle of PipeDream's first stage: F of microbatch m reads the newest version, I and W of microbatch
// m - lag the version of its F, and every W is followed by a step. Returns the digests of the weights.
struct Pipedream {
  std::vector<std::string> digests;
  std::vector<std::vector<std::byte>> gradients;  // of the input, by microbatch
  Stage::MemoryStats memory;
  int64_t pool_peak_bytes = 0;
};

StageOptions MiddleStage(StashPlace stash, Precision precision, int64_t lag) {
  StageOptions options;
  options.layers = {1, 4};
  options.samples = kSamples;
  options.precision = precision;
  options.stash = stash;
  options.optimizer = AdamWConfig{};
  options.versions_max = lag + 1;
  options.microbatches_in_flight_max = lag + 1;
  return options;
}

// As it crosses into a stage.
Tensor Wave(Backend& backend, const Stage& stage, const Shape& shape, int64_t seed) {
  std::vector<float> values(shape.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i * (seed + 1)));
  }
  Tensor tensor = backend.pool().AcquireTensor(stage.crossing_type(), shape);
  if (tensor.dtype == DType::kBf16) {
    backend.ConvertToBf16(tensor.data<uint16_t>(), values.data(), shape.elements());
  } else {
    std::copy(values.begin(), values.end(), tensor.data<float>());
  }
  return tensor;
}

Pipedream Train(Backend& backend, const StageOptions& options, int64_t microbatches) {
  const ModelGraph model = *BuildGpt(TinyGpt());
  const auto stage = *Stage::Create(backend, model, options);
  stage->InitializeWeights();
  const int64_t lag = options.versions_max - 1;
  const std::vector<float> ones(model.size(), 1.0f);
  std::deque<int64_t> versions;  // of microbatches in flight
  Pipedream result;
  int64_t done = 0;
  for (int64_t m = 0; m < microbatches; ++m) {
    versions.push_back(stage->version());
    EXPECT_THAT(stage->Forward(MicrobatchId(m), 2 * m, versions.back(),
                               Wave(backend, *stage, stage->input_shape(), m), {}),
                IsOk());
    if (static_cast<int64_t>(versions.size()) <= lag) continue;
    const int64_t version = versions.front();
    versions.pop_front();
    absl::StatusOr<Tensor> gradient =
        stage->BackwardInput(MicrobatchId(done), version,
                             Wave(backend, *stage, stage->grad_output_shape(), 100 + done), 1.0f);
    EXPECT_THAT(gradient, IsOk());
    if (!gradient.ok()) return result;
    const auto* bytes = gradient->data<std::byte>();
    result.gradients.emplace_back(bytes, bytes + gradient->size_bytes());
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

// The gradient of the input of one microbatch, with `between` after its forward.
std::vector<std::byte> GradientOfOne(Backend& backend, Stage& stage,
                                     const std::function<void()>& between) {
  EXPECT_THAT(
      stage.Forward(MicrobatchId(5), 0, 0, Wave(backend, stage, stage.input_shape(), 1), {}),
      IsOk());
  between();
  const absl::StatusOr<Tensor> gradient = stage.BackwardInput(
      MicrobatchId(5), 0, Wave(backend, stage, stage.grad_output_shape(), 2), 1.0f);
  EXPECT_THAT(gradient, IsOk());
  if (!gradient.ok()) return {};
  const auto* bytes = gradient->data<std::byte>();
  EXPECT_THAT(stage.BackwardWeight(MicrobatchId(5)), IsOk());
  return {bytes, bytes + gradient->size_bytes()};
}

TEST(OffloadedStash, OutAndBack_FreesItsBytesAndGivesTheSameBits) {
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr(what));
  };
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const ModelGraph model = *BuildGpt(TinyGpt());
    TwoPools device;
    const auto stage =
        *Stage::Create(device, model, MiddleStage(StashPlace::kDevice, precision, 0));
    stage->InitializeWeights();
    const std::vector<std::byte> kept = GradientOfOne(device, *stage, [] {});
    const MicrobatchId m(5);
    const std::vector<std::byte> without_store =
        GradientOfOne(device, *stage, [&] { EXPECT_THAT(stage->Offload(m), refused("no store")); });
    EXPECT_EQ(without_store, kept);
    HostOffload store(device);
    stage->OffloadTo(store);
    EXPECT_THAT(stage->Offload(m), refused("without its forward"));
    const int64_t stash = stage->activation_bytes().stash;
    EXPECT_GT(stash, 0);
    const std::vector<std::byte> moved = GradientOfOne(device, *stage, [&] {
      const int64_t before = device.pool().stats().bytes_in_use;
      EXPECT_THAT(stage->Evict(m), refused("expected it to be on its way to the host"));
      EXPECT_THAT(stage->Offload(m), IsOkAndHolds(stash));
      EXPECT_THAT(stage->Offload(m), refused("whose stash is on its way to the host"));
      EXPECT_THAT(stage->Prefetch(m), refused("expected it to be on the host"));
      EXPECT_THAT(
          stage->BackwardInput(m, 0, Wave(device, *stage, stage->grad_output_shape(), 2), 1.0f),
          refused("backward of microbatch 5, whose stash is on its way to the host"));
      EXPECT_THAT(stage->Evict(m), IsOk());
      EXPECT_EQ(device.pool().stats().bytes_in_use, before - stash);
      EXPECT_THAT(stage->Prefetch(m), IsOk());
      EXPECT_EQ(device.pool().stats().bytes_in_use, before);
    });
    EXPECT_EQ(moved, kept);
    const int64_t on_host = device.host_pool().stats().bytes_in_use;
    EXPECT_EQ(on_host, 0);
  }
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

// Pass by pass: the pool must say what the stage said, at most and when the pass is done.
class ActivationBytesTest : public ::testing::TestWithParam<std::tuple<Precision, bool>> {
 protected:
  Precision precision() const { return std::get<0>(GetParam()); }
  bool recomputes() const { return std::get<1>(GetParam()); }
};

// A stage with a pool of its own, passed through once.
class WatchedStage {
 public:
  WatchedStage(const ModelGraph& model, LayerRange layers, Precision precision, bool recomputes)
      : model_(model), recomputes_(recomputes), backend_(*MakeCpuBackend(1)) {
    StageOptions options;
    options.layers = layers;
    options.samples = kSamples;
    options.precision = precision;
    options.recomputes = recomputes;
    stage_ = *Stage::Create(*backend_, model, options);
    stage_->InitializeWeights();
    start_ = said_ = most_ = pool().stats().bytes_in_use;
    EXPECT_EQ(pool().stats().bytes_peak, start_) << "making the stage took more for a while";
  }

  const ActivationBytes& said() const { return stage_->activation_bytes(); }
  // Passes a microbatch through the stage.
  void ExpectWhatWasSaid() {
    Tensor input = Received(stage_->input_shape(), said().input);
    Tensor output = Forward(std::move(input));
    if (stage_->is_last()) {
      BackwardInput(std::move(output));
    } else {
      // What was sent is gone by the time its gradient comes.
      Drop(std::move(output), said().output);
      BackwardInput(Tensor());
    }
    EndPass("W", said().backward_weight, [&] {
      EXPECT_THAT(stage_->BackwardWeight(MicrobatchId(0)), IsOk());
      return Tensor();
    });
    EXPECT_EQ(said_, start_) << "the prediction does not come back to where it started";
    EXPECT_EQ(pool().stats().bytes_in_use, start_);
  }

 private:
  BufferPool& pool() { return backend_->pool(); }

  // What comes from another stage, empty if `shape` is.
  Tensor Received(const Shape& shape, int64_t said_bytes) {
    Tensor tensor;
    if (shape.rank > 0) tensor = Wave(*backend_, *stage_, shape, 1);
    ExpectTaken(said_bytes);
    return tensor;
  }
  void ExpectTaken(int64_t bytes) {
    said_ += bytes;
    EXPECT_EQ(pool().stats().bytes_in_use, said_);
    most_ = std::max(most_, said_);
  }
  void Drop(Tensor tensor, int64_t said_bytes) {
    tensor = Tensor();
    said_ -= said_bytes;
    EXPECT_EQ(pool().stats().bytes_in_use, said_);
  }

  // What a stage returns and keeps counts twice until it is dropped.
  template <typename Pass>
  Tensor EndPass(const char* name, const PassBytes& bytes, Pass pass) {
    const Tensor returned = pass();
    most_ = std::max(most_, said_ + bytes.most);
    said_ += bytes.left;
    EXPECT_EQ(pool().stats().bytes_peak, most_) << name;
    const int64_t twice =
        returned && returned.buffer.shared() ? BufferPool::BlockBytes(returned.size_bytes()) : 0;
    EXPECT_EQ(pool().stats().bytes_in_use + twice, said_) << name;
    return returned;
  }

  Tensor Forward(Tensor input) {
    Tensor output = EndPass("F", said().forward, [&] {
      return *stage_->Forward(MicrobatchId(0), 0, 0, std::move(input),
                              PortsOf(*stage_, model_, 0, kSamples));
    });
    if (!recomputes_) return output;
    EndPass("R", said().recompute, [&] {
      EXPECT_THAT(stage_->Recompute(MicrobatchId(0), 0, PortsOf(*stage_, model_, 0, kSamples)),
                  IsOk());
      return Tensor();
    });
    return output;
  }

  // `loss`: of the last stage, which is read after I.
  void BackwardInput(Tensor loss) {
    Tensor gradient = Received(stage_->grad_output_shape(), said().grad_output);
    gradient = EndPass("I", said().backward_input, [&] {
      Tensor returned = *stage_->BackwardInput(MicrobatchId(0), 0, std::move(gradient), 1.0f);
      loss = Tensor();
      return returned;
    });
    Drop(std::move(gradient), said().grad_input);
  }

  const ModelGraph& model_;
  const bool recomputes_;
  const std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stage> stage_;
  int64_t start_ = 0;  // in use
  int64_t said_ = 0;   // that should be in use by now
  int64_t most_ = 0;   // and was at most
};

TEST_P(ActivationBytesTest, OfEveryPassOfEveryCut_AreThoseOfThePool) {
  GptConfig config = TinyGpt();
  config.dropout = 0.1;
  const ModelGraph model = *BuildGpt(config);
  for (int first = 0; first < model.size(); ++first) {
    for (int count = 1; first + count <= model.size(); ++count) {
      SCOPED_TRACE(testing::Message() << "layers " << first << " to " << first + count - 1);
      WatchedStage(model, {first, count}, precision(), recomputes()).ExpectWhatWasSaid();
    }
  }
}

TEST_P(ActivationBytesTest, OfEveryCutOfAGraphWithSkips_AreThoseOfThePool) {
  const ModelGraph model = SkipModel({});
  for (int first = 0; first < model.size(); ++first) {
    for (int count = 1; first + count <= model.size(); ++count) {
      SCOPED_TRACE(testing::Message() << "layers " << first << " to " << first + count - 1);
      WatchedStage(model, {first, count}, precision(), recomputes()).ExpectWhatWasSaid();
    }
  }
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
