// The CPU back-end's ops of a GPT and update rules, one thread, on the sizes of a small GPT:
//
//   BM_Forward, BM_BackwardInput, BM_BackwardWeight / layer / precision    FLOP/s
//   BM_Optimizer / rule                                                    bytes/s
//   BM_SquaredNorm                                                         bytes/s
#include <benchmark/benchmark.h>

#include <numeric>

#include "base/random.h"
#include "compute/backend.h"
#include "compute/pass_plan.h"
#include "model/families/gpt.h"

namespace penstock {
namespace {

constexpr int64_t kSamples = 8;
constexpr int64_t kTime = 256;

ModelGraph MakeModel() {
  GptConfig config;
  config.layers = 1;
  config.width = 256;
  config.heads = 4;
  config.context = kTime;
  config.tied_head = false;
  return *BuildGpt(config);
}

// One layer with everything its passes need.
class LayerRig {
 public:
  LayerRig(int layer, Precision precision)
      : backend_(*MakeCpuBackend(1)),
        model_(MakeModel()),
        layer_(model_.layers[layer]),
        node_(model_.nodes[layer_.first_node]),
        kernels_(*backend_->MakeKernels(
            {.node = node_, .inputs = model_.InputTypes(node_), .samples = kSamples}, precision)) {
    int64_t count = 0;
    for (const ParameterSpec& parameter : node_.parameters) {
      offsets_.push_back(count);
      count += (parameter.size() + 15) / 16 * 16;
    }
    weights_ = Random({count}, 0.05);
    gradients_ = Random({count}, 0.0);
    mirror_ = backend_->pool().AcquireTensor(DType::kBf16, {count});
    backend_->ConvertToBf16(mirror_.data<uint16_t>(), weights_.data<float>(), count);
    const TapeNeeds needs = kernels_->tape_needs();
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      const ValueType& type = model_.TypeOf(node_.inputs[i]);
      const Tensor input = type.dtype == DType::kI32 ? Ids(ShapeOf(type, kSamples))
                                                     : Random(ShapeOf(type, kSamples), 1.0);
      tape_.inputs[i] = Keep(input);
      if (model_.NeedsGradient(node_.inputs[i]))
        tape_.grad_inputs[i] = Keep(Random(input.shape, 0.0));
    }
    const Shape output = node_.op->is_loss() ? Shape{1} : ShapeOf(node_.output, kSamples);
    tape_.output = Keep(Random(output, 0.0));
    tape_.grad_output = Keep(Random(output, 1.0));
    tape_.stash = KeepBlock(needs.stash_bytes);
    tape_.kept = KeepBlock(needs.kept_bytes);
    tape_.weight_stash = KeepBlock(needs.weight_stash_bytes);
    Forward();
    BackwardInput();
  }

  void Forward() { benchmark::DoNotOptimize(kernels_->Forward({}, View(), tape_)); }
  void BackwardInput() { benchmark::DoNotOptimize(kernels_->BackwardInput({}, View(), tape_)); }
  void BackwardWeight() {
    benchmark::DoNotOptimize(
        kernels_->BackwardWeight({}, {gradients_.data<float>(), offsets_.data()}, tape_));
  }

  LayerCost cost() const { return EstimateCost(model_, layer_); }
  const std::string& name() const { return layer_.name; }

 private:
  WeightView View() const {
    return {weights_.data<float>(), mirror_.data<uint16_t>(), offsets_.data()};
  }
  Tensor Random(const Shape& shape, double deviation) {
    RandomStream random(1, shape.elements());
    Tensor tensor = backend_->pool().AcquireTensor(DType::kF32, shape);
    for (int64_t i = 0; i < shape.elements(); ++i) {
      tensor.data<float>()[i] = static_cast<float>(deviation * random.Normal());
    }
    return tensor;
  }
  Tensor Ids(const Shape& shape) {
    Tensor tensor = backend_->pool().AcquireTensor(DType::kI32, shape);
    std::iota(tensor.data<int32_t>(), tensor.data<int32_t>() + shape.elements(), 0);
    for (int64_t i = 0; i < shape.elements(); ++i) {
      tensor.data<int32_t>()[i] %= 256;
    }
    return tensor;
  }

  void* Keep(const Tensor& tensor) {
    blocks_.push_back(tensor.buffer);
    return tensor.data<void>();
  }
  void* KeepBlock(int64_t size_bytes) {
    if (size_bytes == 0) return nullptr;
    return blocks_.emplace_back(backend_->pool().Acquire(size_bytes)).data();
  }

  std::unique_ptr<Backend> backend_;
  const ModelGraph model_;
  const LayerSpec& layer_;
  const Node& node_;
  std::unique_ptr<OpKernels> kernels_;
  std::vector<int64_t> offsets_;
  Tensor weights_, mirror_, gradients_;
  std::vector<Buffer> blocks_;  // that the tape refers to
  Tape tape_;
};

void RunPass(benchmark::State& state, void (LayerRig::*pass)(), double LayerCost::*flops) {
  const auto precision = static_cast<Precision>(state.range(1));
  LayerRig rig(static_cast<int>(state.range(0)), precision);
  for (auto _ : state) {
    (rig.*pass)();
  }
  state.SetLabel(rig.name() + (precision == Precision::kBf16 ? " bf16" : " f32"));
  state.counters["FLOP/s"] = benchmark::Counter(rig.cost().*flops * kSamples,
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Forward(benchmark::State& state) {
  RunPass(state, &LayerRig::Forward, &LayerCost::forward_flops);
}
void BM_BackwardInput(benchmark::State& state) {
  RunPass(state, &LayerRig::BackwardInput, &LayerCost::backward_input_flops);
}
void BM_BackwardWeight(benchmark::State& state) {
  RunPass(state, &LayerRig::BackwardWeight, &LayerCost::backward_weight_flops);
}

// embedding, attention, mlp, final norm, head; f32 and bf16.
void EveryLayer(benchmark::internal::Benchmark* benchmark) {
  for (int64_t layer = 0; layer < 5; ++layer) {
    for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
      benchmark->Args({layer, static_cast<int64_t>(precision)});
    }
  }
  benchmark->Unit(benchmark::kMicrosecond);
}
BENCHMARK(BM_Forward)->Apply(EveryLayer);
BENCHMARK(BM_BackwardInput)->Apply(EveryLayer);
BENCHMARK(BM_BackwardWeight)->Apply(EveryLayer);

constexpr int64_t kParameters = int64_t{1} << 22;

void BM_Optimizer(benchmark::State& state, const OptimizerConfig& config, int64_t arrays_moved) {
  const auto backend = *MakeCpuBackend(1);
  const std::vector<ParameterSlice> slices = {{0, kParameters, true}};
  const auto optimizer = *backend->MakeOptimizer(config, slices);
  std::vector<Tensor> arrays;
  for (int i = 0; i < 4; ++i) {
    arrays.push_back(backend->pool().AcquireTensor(DType::kF32, {kParameters}));
    backend->Fill(arrays.back().data<float>(), 1.0f, kParameters);
  }
  std::vector<float*> slots = {arrays[2].data<float>(), arrays[3].data<float>()};
  StepArguments arguments;
  arguments.weights = arguments.next_weights = arrays[0].data<float>();
  arguments.gradients = arrays[1].data<float>();
  arguments.state = absl::MakeConstSpan(slots).first(optimizer->state_names().size());
  arguments.learning_rate = 1e-6;
  const float scale = 1.0f;
  arguments.gradient_scales = absl::MakeConstSpan(&scale, 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(optimizer->Step(arguments));
    ++arguments.update;
  }
  state.SetBytesProcessed(state.iterations() * kParameters * 4 * arrays_moved);
}
// AdamW reads four arrays and writes three; SGD with momentum reads three and writes two.
BENCHMARK_CAPTURE(BM_Optimizer, AdamW, AdamWConfig{}, 7)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Optimizer, Sgd, (SgdConfig{0.9, 0.0}), 5)->Unit(benchmark::kMicrosecond);

void BM_SquaredNorm(benchmark::State& state) {
  const auto backend = *MakeCpuBackend(1);
  const Tensor values = backend->pool().AcquireTensor(DType::kF32, {kParameters});
  backend->Fill(values.data<float>(), 1.0f, kParameters);
  const ParameterSlice slice = {0, kParameters, true};
  const auto norms = *backend->MakeSliceNorms(absl::MakeConstSpan(&slice, 1));
  double squared_norm = 0.0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        norms->Measure(values.data<float>(), absl::MakeSpan(&squared_norm, 1)));
  }
  state.SetBytesProcessed(state.iterations() * kParameters * 4);
}
BENCHMARK(BM_SquaredNorm)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
