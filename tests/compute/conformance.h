// The conformance suite every back-end passes. A back-end adds one file that instantiates it:
//
//     INSTANTIATE_TEST_SUITE_P(Cpu, BackendConformance, ::testing::Values(BackendCase{...}), ...);
//
// conformance_layers.cc compares the ops of the GPT with double-precision references, conformance_stage.cc and
// conformance_skips.cc check that results do not depend on the partition or the order of microbatches,
// conformance_optimizer.cc the update rules, conformance_errors.cc bad input.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "compute/clip.h"
#include "compute/stage.h"
#include "model/families/gpt.h"
#include "tests/compute/device_memory.h"

namespace penstock {

class BackendConformance : public ::testing::TestWithParam<BackendCase> {
 public:
  void SetUp() override;
  Backend& backend() { return *backend_; }

  // As DeviceMemory.
  Tensor Poisoned(DType dtype, const Shape& shape) { return memory().Poisoned(dtype, shape); }
  template <typename T>
  Tensor ToDevice(const std::vector<T>& values, const Shape& shape) {
    return memory().ToDevice(values, shape);
  }
  std::vector<float> ToHost(const Tensor& tensor) { return memory().ToHost(tensor); }
  std::vector<float> ToHost(const float* device, int64_t count) {
    return memory().ToHost(device, count);
  }

 private:
  DeviceMemory memory() { return DeviceMemory(*backend_); }

  std::unique_ptr<Backend> backend_;
};

// A GPT small enough for exhaustive checks, with sizes that fill no vector evenly unless said.
GptConfig TinyGpt();

// A node by itself, as a builder would make it. REQUIRES: the op takes such attributes and inputs.
Node MakeNode(absl::string_view op, const Attributes& attributes, std::vector<ValueType> inputs);

// `count` token ids of microbatch `id` and their targets: next-token pairs of one fixed pseudo-random text.
struct Tokens {
  std::vector<int32_t> ids, targets;
};
Tokens TokensOf(int64_t microbatch, int64_t count, int64_t vocabulary);

// Data of a port for a microbatch. Integers are TokensOf, its targets for a port "targets"; floats are normal numbers.
std::vector<std::byte> PortBytes(const Port& port, int64_t microbatch, int64_t samples);
// All that the stage's layers read, on the device.
std::vector<Tensor> PortsOf(Stage& stage, const ModelGraph& model, int64_t microbatch,
                            int64_t samples);

// A model cut into stages on one back-end, run the way workers would, but in one thread.
class Pipeline {
 public:
  struct Options {
    std::vector<int> layers_per_stage;
    int64_t samples = 2;       // of a microbatch
    int64_t microbatches = 1;  // per step
    Precision precision = Precision::kF32;
    Rounding rounding = Rounding::kNearest;
    bool cuda_graphs = false;
    bool recomputes = false;
    OptimizerConfig optimizer = AdamWConfig{};
    double learning_rate = 1e-3;
    Clip clip;
    uint64_t seed = 7;
    int64_t weights_delay = 0;  // W runs after so many more I of its stage
  };
  Pipeline(Backend& backend, const ModelGraph& model, Options options);

  // One synchronous step in 1F1B order. Returns the mean loss of its microbatches.
  double Step();
  // The same up to the step: gradients are accumulated and tied ones combined.
  double Accumulate();
  void Update();

  Stage& stage(int s) { return *stages_[s]; }
  int stages() const { return static_cast<int>(stages_.size()); }
  // By layer of the model.
  std::vector<std::string> Digests();
  std::vector<NamedArray> Gradients();
  std::vector<NamedArray> Weights();
  // Summed in double over all layers, as CombinedNorm wants them.
  std::vector<double> SquaredNorms();

 private:
  struct Progress {
    int64_t forwards = 0, input_backwards = 0, weight_backwards = 0;
  };
  bool TryForward(int s);
  bool TryBackwardInput(int s);
  bool TryBackwardWeight(int s);
  void CombineTied();

  Backend& backend_;
  const ModelGraph model_;
  const Options options_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<Progress> progress_;
  std::vector<std::vector<Tensor>> inputs_;     // [stage][microbatch of the step]
  std::vector<std::vector<Tensor>> gradients_;  // of the stage's output
  int64_t steps_ = 0;
  double loss_ = 0.0;
};

}  // namespace penstock
