// Additive attention: linear maps of queries and memory, and kernels of our own over what both give. I computes the sums
// of queries and keys again from F's maps, and leaves their gradients for W.
//
// Parameters: matrix of queries, matrix of the memory, v, its length g, bias. I makes the gradients of the last three.
#include <array>
#include <utility>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/kernels/sequences.h"
#include "compute/cuda/linear.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace additive_attention {
namespace {

enum Parameter : int { kQueryMatrix, kMemoryMatrix, kVector, kLength, kBias };
enum Input : int { kQueries, kMemory, kLengths };

// A linear map of a sequence, and where its results and their gradients are.
template <typename Number>
struct Map {
  LinearShape shape;
  Parameter matrix;
  MatrixProduct forward, backward_input;
  WeightGradient<Number> weight;
  Place<float> results;        // stash [rows, units]
  Place<Number> input;         // kept, unless float
  Place<Number> gradients;     // weight stash
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
    for (const int i : {kQueries, kMemory}) {
      const Map<Number>& map = maps_[i];
      if constexpr (!kIsFloat<Number>) {
        ConvertToBf16(cuda_.stream(), map.shape.rows * map.shape.inputs, tape.input(i),
                      map.input.in(tape.kept));
      }
      PENSTOCK_RETURN_IF_ERROR(map.forward.Run({.left = MapInput(i, tape),
                                                .right = ParameterOf<Number>(weights, map.matrix),
                                                .result = map.results.in(tape.stash)}));
    }
    float* const queries = maps_[kQueries].results.in(tape.stash);
    AddBias(cuda_.stream(), rows(), units_, queries, weights.parameter(kBias), queries);
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
    DirectionBackward(cuda_.stream(), units_, weights.parameter(kVector),
                      weights.parameter(kLength), In(direction_sums_),
                      vector_gradient_.in(tape.weight_stash),
                      length_gradient_.in(tape.weight_stash));
    SumRows(of_queries, bias_gradient_.in(tape.weight_stash));
    for (const int i : {kQueries, kMemory}) {
      PENSTOCK_RETURN_IF_ERROR(BackwardOfMap(i, weights, tape));
    }
    return cuda_.Check("backward of an additive attention's inputs");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    for (const int i : {kQueries, kMemory}) {
      PENSTOCK_RETURN_IF_ERROR(maps_[i].weight.Add(gradients, MapInput(i, tape),
                                                   maps_[i].gradients.in(tape.weight_stash)));
    }
    const auto add = [&](Parameter parameter, int64_t count, const Place<float>& sums) {
      AddInto(cuda_.stream(), count, sums.in(tape.weight_stash), gradients.parameter(parameter));
    };
    add(kVector, units_, vector_gradient_);
    add(kLength, 1, length_gradient_);
    add(kBias, units_, bias_gradient_);
    return cuda_.Check("backward of an additive attention's weights");
  }

 private:
  CudaAdditiveAttention(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        samples_(spec.samples),
        queries_(spec.inputs[kQueries].dims[0]),
        keys_(spec.inputs[kMemory].dims[0]),
        units_(spec.attributes().integer("units")),
        width_(spec.width(kMemory)),
        has_lengths_(spec.inputs.size() > kLengths) {
    constexpr bool kFloat = kIsFloat<Number>;
    BlockLayout stash, kept, weight_stash;
    for (const int i : {kQueries, kMemory}) {
      Map<Number>& map = maps_[i];
      map.shape = {spec.rows(i), spec.width(i), units_, /*outputs_first=*/true};
      map.matrix = i == kQueries ? kQueryMatrix : kMemoryMatrix;
      map.results = stash.Add<float>(map.shape.rows * units_);
      map.input = kept.Add<Number>(kFloat ? 0 : map.shape.rows * map.shape.inputs);
      map.gradients = weight_stash.Add<Number>(map.shape.rows * units_);
    }
    weights_ = stash.Add<float>(rows() * keys_);
    vector_gradient_ = weight_stash.Add<float>(units_);
    length_gradient_ = weight_stash.Add<float>(1);
    bias_gradient_ = weight_stash.Add<float>(units_);
    needs_ = {
        .stash_bytes = stash.size_bytes(),
        .kept_bytes = kept.size_bytes(),
        .weight_stash_bytes = weight_stash.size_bytes(),
        .inputs_for_input = InputSet{1} << kMemory | InputSet{1} << kLengths,
        .inputs_for_weight = kFloat ? InputSet{1} << kQueries | InputSet{1} << kMemory : kNoInputs};
  }

  int64_t PlaceScratch() {  // bytes
    BlockLayout scratch;
    direction_ = scratch.Add<float>(units_);
    slopes_ = scratch.Add<float>(rows() * keys_);
    direction_shares_ = scratch.Add<float>(rows() * units_);
    direction_sums_ = scratch.Add<float>(units_);
    sums_workspace_ = scratch.Add<float>(ColumnSumsWorkspaceFloats(rows(), units_));
    for (Map<Number>& map : maps_) {
      map.raw_gradients = scratch.Add<float>(kIsFloat<Number> ? 0 : map.shape.rows * units_);
    }
    return scratch.size_bytes();
  }

  absl::Status MakeProducts() {
    for (const int i : {kQueries, kMemory}) {
      Map<Number>& map = maps_[i];
      PENSTOCK_ASSIGN_OR_RETURN(
          map.forward, MatrixProduct::Create(cuda_, ForwardShape<Number>(map.shape, CUDA_R_32F)));
      ProductShape to_input = BackwardInputShape<Number>(map.shape, CUDA_R_32F);
      to_input.accumulate = i == kMemory;  // to the gradient of what is mixed
      PENSTOCK_ASSIGN_OR_RETURN(map.backward_input, MatrixProduct::Create(cuda_, to_input));
      PENSTOCK_ASSIGN_OR_RETURN(map.weight,
                                WeightGradient<Number>::Create(cuda_, map.shape, map.matrix));
    }
    return absl::OkStatus();
  }

  int64_t rows() const { return samples_ * queries_; }  // of queries

  template <typename T>
  T* In(const Place<T>& place) const {
    return place.in(cuda_.layer_scratch().data());
  }

  // What the products of W read.
  const Number* MapInput(int i, const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return tape.input(i);
    } else {
      return maps_[i].input.in(tape.kept);
    }
  }

  // Gradients of a map's results, before they are rounded for its products.
  float* RawGradients(int i, const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return maps_[i].gradients.in(tape.weight_stash);
    } else {
      return In(maps_[i].raw_gradients);
    }
  }

  // Also sets the direction.
  AdditiveAttention Attention(const WeightView& weights, const Tape& tape) const {
    DirectionForward(cuda_.stream(), units_, weights.parameter(kVector), weights.parameter(kLength),
                     In(direction_));
    return {.samples = samples_,
            .queries = queries_,
            .keys = keys_,
            .units = units_,
            .width = width_,
            .query = maps_[kQueries].results.in(tape.stash),
            .key = maps_[kMemory].results.in(tape.stash),
            .direction = In(direction_),
            .memory = tape.input(kMemory),
            .lengths = has_lengths_ ? tape.input<int32_t>(kLengths) : nullptr,
            .weights = weights_.in(tape.stash)};
  }

  // sums [units] over the queries of values [rows, units].
  void SumRows(const float* values, float* sums) const {
    ColumnSums(cuda_.stream(), rows(), units_, values, sums, In(sums_workspace_));
  }

  absl::Status BackwardOfMap(int i, const WeightView& weights, const Tape& tape) const {
    const Map<Number>& map = maps_[i];
    Number* const gradients = map.gradients.in(tape.weight_stash);
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), map.shape.rows * units_, In(map.raw_gradients), gradients);
    }
    if (tape.grad_input(i) == nullptr) return absl::OkStatus();
    return map.backward_input.Run({.left = gradients,
                                   .right = ParameterOf<Number>(weights, map.matrix),
                                   .result = tape.grad_input(i)});
  }

  CudaContext& cuda_;
  const int64_t samples_, queries_, keys_, units_, width_;
  const bool has_lengths_;
  std::array<Map<Number>, 2> maps_;  // of queries and memory
  TapeNeeds needs_;
  Place<float> weights_;           // stash [samples, queries, keys]
  Place<float> vector_gradient_;   // weight stash
  Place<float> length_gradient_;   // weight stash
  Place<float> bias_gradient_;     // weight stash
  Place<float> direction_;         // scratch
  Place<float> slopes_;            // scratch [samples, queries, keys]
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
