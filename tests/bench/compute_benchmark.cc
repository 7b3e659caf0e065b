// The CPU back-end's layers and update rules, one thread, on the sizes of a small GPT:
//
//   BM_Forward, BM_BackwardInput, BM_BackwardWeight / layer / precision    FLOP/s
//   BM_Optimizer / rule                                                    bytes/s
//   BM_SquaredNorm                                                         bytes/s
#include <benchmark/benchmark.h>

#include <numeric>

#include "base/random.h"
#include "compute/backend.h"
#include "model/families/gpt.h"

namespace penstock {
namespace {

constexpr BatchShape kBatch = {8, 256};

ModelGraph MakeChain() {
  GptConfig config;
  config.layers = 1;
  config.width = 256;
  config.heads = 4;
  config.context = kBatch.time;
  config.tied_head = false;
  return *BuildGpt(config);
}

// One layer with everything its passes need.
class LayerRig {
 public:
  LayerRig(int layer, Precision precision)
      : backend_(*MakeCpuBackend(1)),
        chain_(MakeChain()),
        spec_(chain_.layers[layer]),
        layer_(*backend_->MakeLayer(spec_, kBatch, precision)) {
    int64_t count = 0;
    for (const ParameterSpec& parameter : spec_.parameters) {
      offsets_.push_back(count);
      count += (parameter.size() + 15) / 16 * 16;
    }
    weights_ = Random({count}, 0.05);
    gradients_ = Random({count}, 0.0);
    mirror_ = backend_->pool().AcquireTensor(DType::kBf16, {count});
    backend_->ConvertToBf16(mirror_.data<uint16_t>(), weights_.data<float>(), count);
    const Shape tokens{kBatch.batch, kBatch.time};
    const Shape activation{kBatch.batch, kBatch.time, chain_.width};
    const TapeNeeds needs = layer_->tape_needs();
    is_head_ = std::holds_alternative<HeadLayer>(spec_.config);
    tape_.input = layer == 0 ? Ids(tokens) : Random(activation, 1.0);
    tape_.targets = Ids(tokens);
    tape_.grad_output = Random(activation, 1.0);
    tape_.stash = backend_->pool().Acquire(needs.stash_bytes);
    tape_.kept = backend_->pool().Acquire(needs.kept_bytes);
    tape_.weight_stash = backend_->pool().Acquire(needs.weight_stash_bytes);
    output_ = Random(is_head_ ? Shape{1} : activation, 0.0);
    grad_input_ = Random(activation, 0.0);
    Forward();
    BackwardInput();
  }

  void Forward() { benchmark::DoNotOptimize(layer_->Forward({}, View(), tape_, output_)); }
  void BackwardInput() {
    benchmark::DoNotOptimize(layer_->BackwardInput({}, View(), tape_, grad_input_));
  }
  void BackwardWeight() {
    benchmark::DoNotOptimize(
        layer_->BackwardWeight({}, {gradients_.data<float>(), offsets_.data()}, tape_));
  }

  LayerCost cost() const { return EstimateCost(chain_, spec_); }
  const std::string& name() const { return spec_.name; }

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

  std::unique_ptr<Backend> backend_;
  const ModelGraph chain_;
  const LayerSpec spec_;
  std::unique_ptr<Layer> layer_;
  std::vector<int64_t> offsets_;
  Tensor weights_, mirror_, gradients_, output_, grad_input_;
  Tape tape_;
  bool is_head_ = false;
};

void RunPass(benchmark::State& state, void (LayerRig::*pass)(), double LayerCost::*flops) {
  const auto precision = static_cast<Precision>(state.range(1));
  LayerRig rig(static_cast<int>(state.range(0)), precision);
  for (auto _ : state) {
    (rig.*pass)();
  }
  state.SetLabel(rig.name() + (precision == Precision::kBf16 ? " bf16" : " f32"));
  state.counters["FLOP/s"] = benchmark::Counter(rig.cost().*flops * kBatch.batch,
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
