// Additive attention: linear maps of queries and memory, and loops of our own over what both give. I computes the sums
// of queries and keys again from F's maps, and leaves their gradients for W.
//
// Parameters: matrix of queries, matrix of the memory, v, its length g, bias. I makes the gradients of the last three.
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/linear.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace additive_attention {
namespace {

enum Parameter : int { kQueryMatrix, kMemoryMatrix, kVector, kLength, kBias };
enum Input : int { kQueries, kMemory, kLengths };

// A linear map of a sequence, and where its results and their gradients are.
template <typename Number>
struct Map {
  LinearShape shape;
  Linear<Number> products;
  Place<float> results;        // stash [rows, units]
  Place<Number> input;         // kept, unless float
  Place<Number> gradients;     // weight stash
  Place<float> raw_gradients;  // scratch, unless float
};

template <typename Number>
class CpuAdditiveAttention : public OpKernels {
 public:
  static MadeKernels Create(CpuContext& context, const KernelSpec& spec) {
    std::unique_ptr<CpuAdditiveAttention> op(new CpuAdditiveAttention(context, spec));
    PENSTOCK_RETURN_IF_ERROR(op->MakeProducts());
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(op->PlaceScratch()));
    return std::unique_ptr<OpKernels>(std::move(op));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    for (const int i : {kQueries, kMemory}) {
      const Map<Number>& map = maps_[i];
      if constexpr (!kFloat) {
        ToBf16(map.shape.rows * map.shape.inputs, tape.input(i), map.input.in(tape.kept));
      }
      map.products.ForwardOfRows(weights, MapInput(i, tape), map.results.in(tape.stash));
    }
    AddBias(weights, tape);
    SetDirection(weights);
    cpu_.threads.For(samples_, [&](int64_t sample, int) {
      cpu_.kernels.additive_attention_forward(SampleOf(tape, sample),
                                              tape.result() + sample * queries_ * width_);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    SetDirection(weights);
    cpu_.threads.For(samples_, [&](int64_t sample, int thread) {
      BackwardOfSample(tape, sample, In(slopes_) + thread * keys_);
    });
    VectorGradients(weights, tape);
    BiasGradient(tape);
    for (const int i : {kQueries, kMemory}) {
      const Map<Number>& map = maps_[i];
      Number* const gradients = map.gradients.in(tape.weight_stash);
      if constexpr (!kFloat) {
        ToBf16(map.shape.rows * map.shape.outputs, In(map.raw_gradients), gradients);
      }
      if (tape.grad_input(i) != nullptr) {
        map.products.BackwardInputOfRows(weights, gradients, tape.grad_input(i));
      }
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    for (const int i : {kQueries, kMemory}) {
      maps_[i].products.BackwardWeight(gradients, MapInput(i, tape),
                                       maps_[i].gradients.in(tape.weight_stash));
    }
    const auto add = [&](Parameter parameter, int64_t count, const Place<float>& sums) {
      cpu_.kernels.add_into(count, sums.in(tape.weight_stash), gradients.parameter(parameter));
    };
    add(kVector, units_, vector_gradient_);
    add(kLength, 1, length_gradient_);
    add(kBias, units_, bias_gradient_);
    return absl::OkStatus();
  }

 private:
  static constexpr bool kFloat = std::is_same_v<Number, float>;

  CpuAdditiveAttention(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        samples_(spec.samples),
        queries_(spec.inputs[kQueries].dims[0]),
        keys_(spec.inputs[kMemory].dims[0]),
        units_(spec.attributes().integer("units")),
        width_(spec.width(kMemory)),
        has_lengths_(spec.inputs.size() > kLengths) {
    BlockLayout stash, kept, weight_stash;
    for (const int i : {kQueries, kMemory}) {
      Map<Number>& map = maps_[i];
      map.shape = {spec.rows(i), ChunkOf(spec.rows(i)), spec.width(i), units_};
      map.shape.outputs_first = true;
      map.shape.adds_to_input = i == kMemory;  // to the gradient of what is mixed
      map.results = stash.Add<float>(map.shape.rows * units_);
      map.input = kept.Add<Number>(kFloat ? 0 : map.shape.rows * map.shape.inputs);
      map.gradients = weight_stash.Add<Number>(map.shape.rows * units_);
    }
    weights_ = stash.Add<float>(samples_ * queries_ * keys_);
    vector_gradient_ = weight_stash.Add<float>(units_);
    length_gradient_ = weight_stash.Add<float>(1);
    bias_gradient_ = weight_stash.Add<float>(units_);
    needs_.stash_bytes = stash.size_bytes();
    needs_.kept_bytes = kept.size_bytes();
    needs_.weight_stash_bytes = weight_stash.size_bytes();
    needs_.inputs_for_input = InputSet{1} << kMemory | InputSet{1} << kLengths;
    needs_.inputs_for_weight =
        kFloat ? InputSet{1} << kQueries | InputSet{1} << kMemory : kNoInputs;
  }

  absl::Status MakeProducts() {
    for (const int i : {kQueries, kMemory}) {
      PENSTOCK_ASSIGN_OR_RETURN(
          maps_[i].products, Linear<Number>::Create(cpu_, maps_[i].shape,
                                                    i == kQueries ? kQueryMatrix : kMemoryMatrix));
    }
    return absl::OkStatus();
  }

  int64_t PlaceScratch() {  // bytes
    BlockLayout scratch;
    direction_ = scratch.Add<float>(units_);
    slopes_ = scratch.Add<float>(cpu_.threads.count() * keys_);
    sample_sums_ = scratch.Add<float>(samples_ * units_);
    sums_ = scratch.Add<float>(units_);
    block_sums_ = scratch.Add<float>(BlocksOf(samples_ * queries_) * units_);
    for (const int i : {kQueries, kMemory}) {
      maps_[i].raw_gradients = scratch.Add<float>(kFloat ? 0 : maps_[i].shape.rows * units_);
    }
    return scratch.size_bytes();
  }

  template <typename T>
  T* In(const Place<T>& place) const {
    return place.in(cpu_.layer_scratch.data());
  }

  void ToBf16(int64_t count, const float* from, Bf16* to) const {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      cpu_.kernels.to_bf16(size, from + first, to + first);
    });
  }

  // What the products of W read.
  const Number* MapInput(int i, const Tape& tape) const {
    if constexpr (kFloat) {
      return tape.input(i);
    } else {
      return maps_[i].input.in(tape.kept);
    }
  }

  // Gradients of a map's results, before they are rounded for its products.
  float* RawGradients(int i, const Tape& tape) const {
    if constexpr (kFloat) {
      return maps_[i].gradients.in(tape.weight_stash);
    } else {
      return In(maps_[i].raw_gradients);
    }
  }

  void AddBias(const WeightView& weights, const Tape& tape) const {
    float* const results = maps_[kQueries].results.in(tape.stash);
    cpu_.threads.ForBlocks(
        samples_ * queries_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
          cpu_.kernels.add_bias(count, units_, results + first * units_, weights.parameter(kBias));
        });
  }

  double SizeOfVector(const WeightView& weights) const {
    return std::sqrt(cpu_.kernels.squared_norm(units_, weights.parameter(kVector)));
  }

  // direction = g v / |v|
  void SetDirection(const WeightView& weights) const {
    const auto factor = static_cast<float>(weights.parameter(kLength)[0] / SizeOfVector(weights));
    const float* const v = weights.parameter(kVector);
    std::transform(v, v + units_, In(direction_), [factor](float x) { return factor * x; });
  }

  AdditiveAttention SampleOf(const Tape& tape, int64_t sample) const {
    const int64_t seen = has_lengths_ ? tape.input<int32_t>(kLengths)[sample] : keys_;
    return {.queries = queries_,
            .keys = seen,
            .units = units_,
            .width = width_,
            .query = maps_[kQueries].results.in(tape.stash) + sample * queries_ * units_,
            .key = maps_[kMemory].results.in(tape.stash) + sample * keys_ * units_,
            .direction = In(direction_),
            .memory = tape.input(kMemory) + sample * keys_ * width_,
            .weights = {weights_.in(tape.stash) + sample * queries_ * keys_, keys_}};
  }

  void BackwardOfSample(const Tape& tape, int64_t sample, float* slopes) const {
    const AdditiveAttention attention = SampleOf(tape, sample);
    const int64_t unseen = keys_ - attention.keys;
    float* const key = RawGradients(kMemory, tape) + sample * keys_ * units_;
    float* memory = tape.grad_input(kMemory);
    cpu_.kernels.fill(unseen * units_, 0.0f, key + attention.keys * units_);
    if (memory != nullptr) {
      memory += sample * keys_ * width_;
      cpu_.kernels.fill(unseen * width_, 0.0f, memory + attention.keys * width_);
    }
    cpu_.kernels.additive_attention_backward(
        attention, tape.gradient() + sample * queries_ * width_,
        {RawGradients(kQueries, tape) + sample * queries_ * units_, key,
         In(sample_sums_) + sample * units_, memory},
        slopes);
  }

  // From the gradient of the direction.
  void VectorGradients(const WeightView& weights, const Tape& tape) const {
    float* const sums = In(sums_);
    cpu_.kernels.column_sums(samples_, units_, In(sample_sums_), sums);
    const float* const v = weights.parameter(kVector);
    const double size = SizeOfVector(weights);
    const double length = weights.parameter(kLength)[0];
    double along = 0.0;  // of the gradient
    for (int64_t u = 0; u < units_; ++u) along += static_cast<double>(sums[u]) * v[u] / size;
    float* const gradient = vector_gradient_.in(tape.weight_stash);
    for (int64_t u = 0; u < units_; ++u) {
      gradient[u] = static_cast<float>(length / size * (sums[u] - along * v[u] / size));
    }
    *length_gradient_.in(tape.weight_stash) = static_cast<float>(along);
  }

  void BiasGradient(const Tape& tape) const {
    const int64_t rows = samples_ * queries_;
    const float* const gradients = RawGradients(kQueries, tape);
    float* const block_sums = In(block_sums_);
    cpu_.threads.ForBlocks(rows, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
      cpu_.kernels.column_sums(count, units_, gradients + first * units_,
                               block_sums + block * units_);
    });
    float* const sums = bias_gradient_.in(tape.weight_stash);
    cpu_.kernels.fill(units_, 0.0f, sums);
    AddBlockSums(cpu_, rows, units_, block_sums, sums);
  }

  CpuContext& cpu_;
  const int64_t samples_, queries_, keys_, units_, width_;
  const bool has_lengths_;
  std::array<Map<Number>, 2> maps_;  // of queries and memory
  TapeNeeds needs_;
  Place<float> weights_;          // stash [samples, queries, keys]
  Place<float> vector_gradient_;  // weight stash
  Place<float> length_gradient_;  // weight stash
  Place<float> bias_gradient_;    // weight stash
  Place<float> direction_;        // scratch
  Place<float> slopes_;           // scratch, of a query's weights, for each thread
  Place<float> sample_sums_;      // scratch [samples, units]: of the direction's gradient
  Place<float> sums_;             // scratch: in all
  Place<float> block_sums_;       // scratch
};

}  // namespace
}  // namespace additive_attention

MadeKernels MakeAdditiveAttention(CpuContext& context, const KernelSpec& spec) {
  return spec.bf16 ? additive_attention::CpuAdditiveAttention<Bf16>::Create(context, spec)
                   : additive_attention::CpuAdditiveAttention<float>::Create(context, spec);
}

}  // namespace penstock::cpu
