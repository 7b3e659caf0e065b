// Additive attention: linear maps of queries and memory, and loops of our own over what both give. I computes the sums
// of queries and keys again from F's maps, and leaves their gradients for W. It makes those of v, its length and the bias.
#include "compute/ops/additive_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/status.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/linear.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace additive_attention {
namespace {

using penstock::additive_attention::Input;
using penstock::additive_attention::Layout;
using penstock::additive_attention::MapLayout;
using penstock::additive_attention::Sizes;
using enum penstock::additive_attention::Parameter;
using enum penstock::additive_attention::Input;

// What computes the linear map of queries or memory.
template <typename Number>
struct Map {
  Linear<Number> products;
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
    for (const Input i : {kQueries, kMemory}) {
      const MapLayout<Number>& map = layout_.maps[i];
      map.input.Copy(tape, [this](int64_t count, const float* from, auto* to) {
        ToBf16(cpu_, count, from, to);
      });
      maps_[i].products.Forward(weights, map.input.In(tape), map.results.in(tape.stash));
    }
    AddBias(weights, tape);
    SetDirection(weights);
    cpu_.threads.For(s_.samples, [&](int64_t sample, int) {
      cpu_.kernels.additive_attention_forward(SampleOf(tape, sample),
                                              tape.result() + sample * s_.queries * s_.width);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    SetDirection(weights);
    cpu_.threads.For(s_.samples, [&](int64_t sample, int thread) {
      BackwardOfSample(tape, sample, In(slopes_) + thread * s_.keys);
    });
    VectorGradients(weights, tape);
    BiasGradient(tape);
    for (const Input i : {kQueries, kMemory}) {
      const MapLayout<Number>& map = layout_.maps[i];
      Number* const gradients = map.gradients.in(tape.weight_stash);
      if constexpr (!kFloat) {
        ToBf16(cpu_, map.rows * map.outputs, In(maps_[i].raw_gradients), gradients);
      }
      if (tape.grad_input(i) != nullptr) {
        maps_[i].products.BackwardInput(weights, gradients, tape.grad_input(i));
      }
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    for (const Input i : {kQueries, kMemory}) {
      const MapLayout<Number>& map = layout_.maps[i];
      maps_[i].products.BackwardWeight(gradients, map.input.In(tape),
                                       map.gradients.in(tape.weight_stash));
    }
    const auto add = [&](int parameter, int64_t count, const Place<float>& sums) {
      cpu_.kernels.add_into(count, sums.in(tape.weight_stash), gradients.parameter(parameter));
    };
    add(kVector, s_.units, layout_.vector_gradient);
    add(kLength, 1, layout_.length_gradient);
    add(kBias, s_.units, layout_.bias_gradient);
    return absl::OkStatus();
  }

 private:
  static constexpr bool kFloat = std::is_same_v<Number, float>;

  CpuAdditiveAttention(CpuContext& context, const KernelSpec& spec)
      : cpu_(context), layout_(spec), s_(layout_.sizes), needs_(layout_.needs()) {}

  absl::Status MakeProducts() {
    for (const Input i : {kQueries, kMemory}) {
      const MapLayout<Number>& map = layout_.maps[i];
      LinearShape shape = {map.rows, ChunkOf(map.rows), map.inputs, map.outputs};
      shape.outputs_first = true;
      shape.adds_to_input = map.adds_to_input;
      PENSTOCK_ASSIGN_OR_RETURN(maps_[i].products, Linear<Number>::Create(cpu_, shape, map.matrix));
    }
    return absl::OkStatus();
  }

  int64_t PlaceScratch() {  // bytes
    BlockLayout scratch;
    direction_ = scratch.Add<float>(s_.units);
    slopes_ = scratch.Add<float>(cpu_.threads.count() * s_.keys);
    sample_sums_ = scratch.Add<float>(s_.samples * s_.units);
    sums_ = scratch.Add<float>(s_.units);
    block_sums_ = scratch.Add<float>(BlocksOf(s_.rows()) * s_.units);
    for (const Input i : {kQueries, kMemory}) {
      maps_[i].raw_gradients =
          scratch.Add<float>(kFloat ? 0 : layout_.maps[i].rows * layout_.maps[i].outputs);
    }
    return scratch.size_bytes();
  }

  template <typename T>
  T* In(const Place<T>& place) const {
    return place.in(cpu_.layer_scratch.data());
  }

  // Gradients of a map's results, before they are rounded for its products.
  float* RawGradients(Input i, const Tape& tape) const {
    if constexpr (kFloat) {
      return layout_.maps[i].gradients.in(tape.weight_stash);
    } else {
      return In(maps_[i].raw_gradients);
    }
  }

  void AddBias(const WeightView& weights, const Tape& tape) const {
    float* const results = layout_.maps[kQueries].results.in(tape.stash);
    cpu_.threads.ForBlocks(s_.rows(), kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      cpu_.kernels.add_bias(count, s_.units, results + first * s_.units, weights.parameter(kBias));
    });
  }

  double SizeOfVector(const WeightView& weights) const {
    return std::sqrt(cpu_.kernels.squared_norm(s_.units, weights.parameter(kVector)));
  }

  // direction = g v / |v|
  void SetDirection(const WeightView& weights) const {
    const auto factor = static_cast<float>(weights.parameter(kLength)[0] / SizeOfVector(weights));
    const float* const v = weights.parameter(kVector);
    std::transform(v, v + s_.units, In(direction_), [factor](float x) { return factor * x; });
  }

  AdditiveAttention SampleOf(const Tape& tape, int64_t sample) const {
    const int64_t seen = s_.has_lengths ? tape.input<int32_t>(kLengths)[sample] : s_.keys;
    return {.queries = s_.queries,
            .keys = seen,
            .units = s_.units,
            .width = s_.width,
            .query = layout_.maps[kQueries].results.in(tape.stash) + sample * s_.queries * s_.units,
            .key = layout_.maps[kMemory].results.in(tape.stash) + sample * s_.keys * s_.units,
            .direction = In(direction_),
            .memory = tape.input(kMemory) + sample * s_.keys * s_.width,
            .weights = {layout_.weights.in(tape.stash) + sample * s_.queries * s_.keys, s_.keys}};
  }

  void BackwardOfSample(const Tape& tape, int64_t sample, float* slopes) const {
    const AdditiveAttention attention = SampleOf(tape, sample);
    const int64_t unseen = s_.keys - attention.keys;
    float* const key = RawGradients(kMemory, tape) + sample * s_.keys * s_.units;
    float* memory = tape.grad_input(kMemory);
    cpu_.kernels.fill(unseen * s_.units, 0.0f, key + attention.keys * s_.units);
    if (memory != nullptr) {
      memory += sample * s_.keys * s_.width;
      cpu_.kernels.fill(unseen * s_.width, 0.0f, memory + attention.keys * s_.width);
    }
    cpu_.kernels.additive_attention_backward(
        attention, tape.gradient() + sample * s_.queries * s_.width,
        {RawGradients(kQueries, tape) + sample * s_.queries * s_.units, key,
         In(sample_sums_) + sample * s_.units, memory},
        slopes);
  }

  // From the gradient of the direction.
  void VectorGradients(const WeightView& weights, const Tape& tape) const {
    float* const sums = In(sums_);
    cpu_.kernels.column_sums(s_.samples, s_.units, In(sample_sums_), sums);
    const float* const v = weights.parameter(kVector);
    const double size = SizeOfVector(weights);
    const double length = weights.parameter(kLength)[0];
    double along = 0.0;  // of the gradient
    for (int64_t u = 0; u < s_.units; ++u) along += static_cast<double>(sums[u]) * v[u] / size;
    float* const gradient = layout_.vector_gradient.in(tape.weight_stash);
    for (int64_t u = 0; u < s_.units; ++u) {
      gradient[u] = static_cast<float>(length / size * (sums[u] - along * v[u] / size));
    }
    *layout_.length_gradient.in(tape.weight_stash) = static_cast<float>(along);
  }

  void BiasGradient(const Tape& tape) const {
    const int64_t rows = s_.rows();
    const float* const gradients = RawGradients(kQueries, tape);
    float* const block_sums = In(block_sums_);
    cpu_.threads.ForBlocks(rows, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
      cpu_.kernels.column_sums(count, s_.units, gradients + first * s_.units,
                               block_sums + block * s_.units);
    });
    float* const sums = layout_.bias_gradient.in(tape.weight_stash);
    cpu_.kernels.fill(s_.units, 0.0f, sums);
    AddBlockSums(cpu_, rows, s_.units, block_sums, sums);
  }

  CpuContext& cpu_;
  const Layout<Number> layout_;
  const Sizes& s_;
  const TapeNeeds needs_;
  std::array<Map<Number>, 2> maps_;  // by Input
  Place<float> direction_;           // scratch
  Place<float> slopes_;              // scratch, of a query's weights, for each thread
  Place<float> sample_sums_;         // scratch [samples, units]: of the direction's gradient
  Place<float> sums_;                // scratch: in all
  Place<float> block_sums_;          // scratch
};

}  // namespace
}  // namespace additive_attention

MadeKernels MakeAdditiveAttention(CpuContext& context, const KernelSpec& spec) {
  return spec.bf16 ? additive_attention::CpuAdditiveAttention<Bf16>::Create(context, spec)
                   : additive_attention::CpuAdditiveAttention<float>::Create(context, spec);
}

}  // namespace penstock::cpu
