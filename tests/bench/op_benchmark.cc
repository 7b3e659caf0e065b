// Single ops on the CPU, one thread, on sizes of ResNet-50 and AlexNet with 8 samples:
//
//   BM_Op / case / pass (0 F, 1 I, 2 W) / precision (0 f32, 1 bf16)    FLOP/s, and bytes/s of inputs, output and gradients
//
// Cases are the rows of kCases, by number.
#include <benchmark/benchmark.h>

#include "base/check.h"
#include "base/random.h"
#include "compute/backend.h"
#include "compute/op_kernels.h"
#include "model/graph_builder.h"

namespace penstock {
namespace {

constexpr int64_t kSamples = 8;

struct OpBenchmark {
  const char* name;
  const char* op;
  Attributes attributes;
  std::vector<int64_t> image;
};

const std::vector<OpBenchmark>& Cases() {
  using Pair = std::vector<int64_t>;
  static const auto& cases = *new std::vector<OpBenchmark>{
      {"3x3 64->64 @56",
       "conv2d",
       {{"channels", int64_t{64}},
        {"kernel", int64_t{3}},
        {"padding", int64_t{1}},
        {"bias", false}},
       {56, 56, 64}},
      {"1x1 256->64 @56",
       "conv2d",
       {{"channels", int64_t{64}}, {"kernel", int64_t{1}}, {"bias", false}},
       {56, 56, 256}},
      {"3x3 512->512 @7",
       "conv2d",
       {{"channels", int64_t{512}},
        {"kernel", int64_t{3}},
        {"padding", int64_t{1}},
        {"bias", false}},
       {7, 7, 512}},
      {"7x7 3->64 @224 stride 2",
       "conv2d",
       {{"channels", int64_t{64}},
        {"kernel", int64_t{7}},
        {"stride", int64_t{2}},
        {"padding", int64_t{3}},
        {"bias", false}},
       {224, 224, 3}},
      {"5x5 96->256 @27 groups 2, bias",
       "conv2d",
       {{"channels", int64_t{256}},
        {"kernel", int64_t{5}},
        {"padding", int64_t{2}},
        {"groups", int64_t{2}}},
       {27, 27, 96}},
      {"64 @56", "batch_norm", {}, {56, 56, 64}},
      {"2048 @7", "batch_norm", {}, {7, 7, 2048}},
      {"256 @28 groups 32", "group_norm", {{"groups", int64_t{32}}}, {28, 28, 256}},
      {"96 @55", "lrn", {{"size", int64_t{5}}, {"k", 2.0}}, {55, 55, 96}},
      {"3x3 64 @112 stride 2",
       "max_pool",
       {{"kernel", int64_t{3}}, {"stride", int64_t{2}}, {"padding", int64_t{1}}},
       {112, 112, 64}},
      {"global 2048 @7", "avg_pool", {{"global", true}}, {7, 7, 2048}},
      {"2x2 256 @56", "avg_pool", {{"kernel", Pair{2, 2}}}, {56, 56, 256}},
  };
  return cases;
}

Node MakeNode(const OpBenchmark& of, const ValueType& input) {
  Node node = {.name = of.name, .op = *FindOp(of.op)};
  node.attributes = *Complete(node.op->attributes, of.attributes);
  OpResult result = *node.op->infer({node.attributes, {&input, 1}});
  node.output = std::move(result.output);
  node.parameters = std::move(result.parameters);
  node.buffers = std::move(result.buffers);
  return node;
}

// One op with everything its passes need.
class OpRig {
 public:
  OpRig(const OpBenchmark& of, Precision precision)
      : backend_(*MakeCpuBackend(1)),
        input_type_{DType::kF32, of.image},
        node_(MakeNode(of, input_type_)),
        kernels_(*backend_->MakeKernels(
            {.node = node_, .inputs = {input_type_}, .samples = kSamples}, precision)) {
    int64_t count = 0;
    for (const ParameterSpec& parameter : node_.parameters) {
      offsets_.push_back(count);
      count += (parameter.size() + 15) / 16 * 16;
    }
    weights_ = Random(count, 0.05);
    gradients_ = Random(count, 0.0);
    mirror_ = backend_->pool().AcquireTensor(DType::kBf16, {count + 16});
    backend_->ConvertToBf16(mirror_.data<uint16_t>(), weights_.data<float>(), count);
    const int64_t inputs = kSamples * input_type_.elements();
    const int64_t outputs = kSamples * node_.output.elements();
    bytes_ = (inputs + outputs) * SizeOf(DType::kF32);
    tensors_ = {Random(inputs, 1.0), Random(outputs, 0.0), Random(outputs, 1.0),
                Random(inputs, 0.0)};
    tape_.inputs[0] = tensors_[0].data<float>();
    tape_.output = tensors_[1].data<float>();
    tape_.grad_output = tensors_[2].data<float>();
    tape_.grad_inputs[0] = tensors_[3].data<float>();
    const TapeNeeds needs = kernels_->tape_needs();
    tape_.stash = Block(needs.stash_bytes);
    tape_.kept = Block(needs.kept_bytes);
    tape_.weight_stash = Block(needs.weight_stash_bytes);
    for (size_t b = 0; b < node_.buffers.size(); ++b) {
      tensors_.push_back(Random(node_.buffers[b].size(), 1.0));
      tape_.buffers[b] = tensors_.back().data<float>();
    }
    for (int pass = 0; pass < 2; ++pass) Run(pass);
  }

  void Run(int64_t pass) {
    const WeightView weights = {weights_.data<float>(), mirror_.data<uint16_t>(), offsets_.data()};
    const absl::Status done =
        pass == 0 ? kernels_->Forward({}, weights, tape_)
        : pass == 1
            ? kernels_->BackwardInput({}, weights, tape_)
            : kernels_->BackwardWeight({}, {gradients_.data<float>(), offsets_.data()}, tape_);
    PENSTOCK_CHECK(done.ok());
  }

  double flops(int64_t pass) const {
    const OpCost cost = node_.op->cost({node_.attributes, {&input_type_, 1}});
    return kSamples * (pass == 0   ? cost.forward_flops
                       : pass == 1 ? cost.backward_input_flops
                                   : cost.backward_weight_flops);
  }
  int64_t bytes() const { return bytes_; }

 private:
  Tensor Random(int64_t count, double deviation) {
    RandomStream random(1, count);
    Tensor tensor = backend_->pool().AcquireTensor(DType::kF32, {count + 16});
    for (int64_t i = 0; i < count; ++i) {
      tensor.data<float>()[i] = static_cast<float>(deviation * random.Normal());
    }
    return tensor;
  }
  void* Block(int64_t size_bytes) {
    if (size_bytes == 0) return nullptr;
    blocks_.push_back(backend_->pool().Acquire(size_bytes));
    return blocks_.back().data();
  }

  std::unique_ptr<Backend> backend_;
  const ValueType input_type_;
  const Node node_;
  std::unique_ptr<OpKernels> kernels_;
  std::vector<int64_t> offsets_;
  Tensor weights_, mirror_, gradients_;
  std::vector<Tensor> tensors_;
  std::vector<Buffer> blocks_;
  Tape tape_;
  int64_t bytes_ = 0;
};

void BM_Op(benchmark::State& state) {
  const OpBenchmark& of = Cases()[state.range(0)];
  const auto precision = state.range(2) == 0 ? Precision::kF32 : Precision::kBf16;
  OpRig rig(of, precision);
  for (auto _ : state) rig.Run(state.range(1));
  state.SetLabel(std::string(of.op) + " " + of.name +
                 (state.range(1) == 0   ? " F"
                  : state.range(1) == 1 ? " I"
                                        : " W"));
  state.counters["FLOP/s"] =
      benchmark::Counter(rig.flops(state.range(1)), benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * rig.bytes());
}

void EveryPass(benchmark::internal::Benchmark* benchmark) {
  for (int64_t i = 0; i < static_cast<int64_t>(Cases().size()); ++i) {
    const bool multiplies = std::string(Cases()[i].op) == "conv2d";
    for (int64_t pass = 0; pass < (multiplies ? 3 : 2); ++pass) {
      for (int64_t precision = 0; precision < (multiplies ? 2 : 1); ++precision) {
        benchmark->Args({i, pass, precision});
      }
    }
  }
  benchmark->Unit(benchmark::kMicrosecond);
}
BENCHMARK(BM_Op)->Apply(EveryPass);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
