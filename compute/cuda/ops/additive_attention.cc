// Additive attention: linear maps of queries and memory, and kernels of our own over what both give. I computes the sums
// of queries and keys again from F's maps, and leaves their gradients for W. It makes those of v, its length and the bias.
#include "compute/ops/additive_attention.h"

#include <array>
#include <utility>

#include "base/status.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/kernels/sequences.h"
#include "compute/cuda/linear.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
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
  MatrixProduct forward, backward_input;
  WeightGradient<Number> weight;
  Place<float> raw_gradients;  // scratch, unless float
};

template <typename Number>
class CudaAdditiveAttention : public OpKernels {
 public:
  static MadeKernels Create(CudaContext& context, const KernelSpec& spec) {
    std::unique_ptr<CudaAdditiveAttention> op(new CudaAdditiveAttention(context, spec));
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(op->PlaceScratch()));
    PENSTOCK_RETURN_IF_ERROR(op->MakeProducts());
    return std::unique_ptr<OpKernels>(std::move(op));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    for (const Input i : {kQueries, kMemory}) {
      const MapLayout<Number>& map = layout_.maps[i];
      map.input.Copy(tape, [this](int64_t count, const float* from, auto* to) {
        ConvertToBf16(cuda_.stream(), count, from, to);
      });
      PENSTOCK_RETURN_IF_ERROR(
          maps_[i].forward.Run({.left = map.input.In(tape),
                                .right = ParameterOf<Number>(weights, map.matrix),
                                .result = map.results.in(tape.stash)}));
    }
    float* const queries = layout_.maps[kQueries].results.in(tape.stash);
    AddBias(cuda_.stream(), s_.rows(), s_.units, queries, weights.parameter(kBias), queries);
    AdditiveAttentionForward(cuda_.stream(), Attention(weights, tape), tape.result());
    return cuda_.Check("forward of an additive attention");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    float* const of_queries = RawGradients(kQueries, tape);
    AdditiveAttentionBackward(cuda_.stream(), Attention(weights, tape),
                              {.output = tape.gradient(),
                               .query = of_queries,
                               .key = RawGradients(kMemory, tape),
                               .memory = tape.grad_input(kMemory),
                               .direction = In(direction_shares_),
                               .slopes = In(slopes_)});
    SumRows(In(direction_shares_), In(direction_sums_));
    DirectionBackward(cuda_.stream(), s_.units, weights.parameter(kVector),
                      weights.parameter(kLength), In(direction_sums_),
                      layout_.vector_gradient.in(tape.weight_stash),
                      layout_.length_gradient.in(tape.weight_stash));
    SumRows(of_queries, layout_.bias_gradient.in(tape.weight_stash));
    for (const Input i : {kQueries, kMemory}) {
      PENSTOCK_RETURN_IF_ERROR(BackwardOfMap(i, weights, tape));
    }
    return cuda_.Check("backward of an additive attention's inputs");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    for (const Input i : {kQueries, kMemory}) {
      const MapLayout<Number>& map = layout_.maps[i];
      PENSTOCK_RETURN_IF_ERROR(
          maps_[i].weight.Add(gradients, map.input.In(tape), map.gradients.in(tape.weight_stash)));
    }
    const auto add = [&](int parameter, int64_t count, const Place<float>& sums) {
      AddInto(cuda_.stream(), count, sums.in(tape.weight_stash), gradients.parameter(parameter));
    };
    add(kVector, s_.units, layout_.vector_gradient);
    add(kLength, 1, layout_.length_gradient);
    add(kBias, s_.units, layout_.bias_gradient);
    return cuda_.Check("backward of an additive attention's weights");
  }

 private:
  CudaAdditiveAttention(CudaContext& context, const KernelSpec& spec)
      : cuda_(context), layout_(spec), s_(layout_.sizes), needs_(layout_.needs()) {}

  int64_t PlaceScratch() {  // bytes
    BlockLayout scratch;
    direction_ = scratch.Add<float>(s_.units);
    slopes_ = scratch.Add<float>(s_.rows() * s_.keys);
    direction_shares_ = scratch.Add<float>(s_.rows() * s_.units);
    direction_sums_ = scratch.Add<float>(s_.units);
    sums_workspace_ = scratch.Add<float>(ColumnSumsWorkspaceFloats(s_.rows(), s_.units));
    for (const Input i : {kQueries, kMemory}) {
      maps_[i].raw_gradients =
          scratch.Add<float>(kIsFloat<Number> ? 0 : layout_.maps[i].rows * layout_.maps[i].outputs);
    }
    return scratch.size_bytes();
  }

  absl::Status MakeProducts() {
    for (const Input i : {kQueries, kMemory}) {
      const MapLayout<Number>& map = layout_.maps[i];
      const LinearShape shape = {map.rows, map.inputs, map.outputs, /*outputs_first=*/true};
      Map<Number>& to = maps_[i];
      PENSTOCK_ASSIGN_OR_RETURN(
          to.forward, MatrixProduct::Create(cuda_, ForwardShape<Number>(shape, CUDA_R_32F)));
      ProductShape to_input = BackwardInputShape<Number>(shape, CUDA_R_32F);
      to_input.accumulate = map.adds_to_input;
      PENSTOCK_ASSIGN_OR_RETURN(to.backward_input, MatrixProduct::Create(cuda_, to_input));
      PENSTOCK_ASSIGN_OR_RETURN(to.weight,
                                WeightGradient<Number>::Create(cuda_, shape, map.matrix));
    }
    return absl::OkStatus();
  }

  template <typename T>
  T* In(const Place<T>& place) const {
    return place.in(cuda_.layer_scratch().data());
  }

  // Gradients of a map's results, before they are rounded for its products.
  float* RawGradients(Input i, const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return layout_.maps[i].gradients.in(tape.weight_stash);
    } else {
      return In(maps_[i].raw_gradients);
    }
  }

  // Also sets the direction.
  AdditiveAttention Attention(const WeightView& weights, const Tape& tape) const {
    DirectionForward(cuda_.stream(), s_.units, weights.parameter(kVector),
                     weights.parameter(kLength), In(direction_));
    return {.samples = s_.samples,
            .queries = s_.queries,
            .keys = s_.keys,
            .units = s_.units,
            .width = s_.width,
            .query = layout_.maps[kQueries].results.in(tape.stash),
            .key = layout_.maps[kMemory].results.in(tape.stash),
            .direction = In(direction_),
            .memory = tape.input(kMemory),
            .lengths = s_.has_lengths ? tape.input<int32_t>(kLengths) : nullptr,
            .weights = layout_.weights.in(tape.stash)};
  }

  // sums [units] over the queries of values [rows, units].
  void SumRows(const float* values, float* sums) const {
    ColumnSums(cuda_.stream(), s_.rows(), s_.units, values, sums, In(sums_workspace_));
  }

  absl::Status BackwardOfMap(Input i, const WeightView& weights, const Tape& tape) const {
    const MapLayout<Number>& map = layout_.maps[i];
    Number* const gradients = map.gradients.in(tape.weight_stash);
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), map.rows * map.outputs, In(maps_[i].raw_gradients), gradients);
    }
    if (tape.grad_input(i) == nullptr) return absl::OkStatus();
    return maps_[i].backward_input.Run({.left = gradients,
                                        .right = ParameterOf<Number>(weights, map.matrix),
                                        .result = tape.grad_input(i)});
  }

  CudaContext& cuda_;
  const Layout<Number> layout_;
  const Sizes& s_;
  const TapeNeeds needs_;
  std::array<Map<Number>, 2> maps_;  // by Input
  Place<float> direction_;           // scratch
  Place<float> slopes_;              // scratch [samples, queries, keys]
  Place<float> direction_shares_;  // scratch [samples, queries, units]: of the direction's gradient
  Place<float> direction_sums_;    // scratch: in all
  Place<float> sums_workspace_;    // scratch
};

}  // namespace
}  // namespace additive_attention

MadeKernels MakeAdditiveAttention(CudaContext& context, const KernelSpec& spec) {
  return spec.bf16 ? additive_attention::CudaAdditiveAttention<Bf16>::Create(context, spec)
                   : additive_attention::CudaAdditiveAttention<float>::Create(context, spec);
}

}  // namespace penstock::cuda
