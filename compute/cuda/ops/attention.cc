// Attention: in bf16 through cuDNN where it has an engine, on copies of what its inputs and gradients are in float; else
// as our own kernels compute it in float. I reads the output that F has made.
#include "compute/cuda/attention.h"

#include <array>
#include <string>
#include <utility>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"
#include "compute/ops/attention.h"

namespace penstock::cuda {
namespace attention {
namespace {

using penstock::attention::Part;
using penstock::attention::Sizes;

// Float, as the values are, or Bf16.
template <typename Number>
class CudaAttention : public OpKernels {
 public:
  CudaAttention(CudaContext& context, const Sizes& sizes, ScaledAttention<Number> attention,
                std::string fallback)
      : cuda_(context),
        s_(sizes),
        attention_(std::move(attention)),
        fallback_(std::move(fallback)) {
    BlockLayout stash, scratch;
    log_sums_ = stash.Add<float>(attention_.log_sums_floats());
    const auto copy = [&](int64_t elements) {
      return scratch.Add<Number>(kIsFloat<Number> ? 0 : elements);
    };
    for (int i = 0; i < s_.inputs(); ++i) {
      inputs_[i] = copy(ElementsOf(i));
      grad_inputs_[i] = copy(ElementsOf(i));
    }
    output_ = copy(s_.output_elements());
    grad_output_ = copy(s_.output_elements());
    attention_scratch_ = scratch.Add<char>(attention_.scratch_bytes());
    scratch_bytes_ = scratch.size_bytes();
    needs_ = {.stash_bytes = stash.size_bytes(),
              .inputs_for_input = kAllInputs,
              .output_for_input = true};
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }
  absl::string_view fallback() const override { return fallback_; }
  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    Number* const output = Result(tape.result(), output_);
    PENSTOCK_RETURN_IF_ERROR(attention_.Forward(InputsOf(tape), output, log_sums_.in(tape.stash),
                                                In(attention_scratch_)));
    PutBack(s_.output_elements(), output, tape.result());
    return cuda_.Check("forward of an attention");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    std::array<Number*, 3> gradients = {};
    for (int i = 0; i < s_.inputs(); ++i) {
      gradients[i] = Result(tape.grad_input(i), grad_inputs_[i]);
    }
    PENSTOCK_RETURN_IF_ERROR(attention_.Backward(
        InputsOf(tape), Operand(s_.output_elements(), tape.result(), output_),
        Operand(s_.output_elements(), tape.gradient(), grad_output_), log_sums_.in(tape.stash),
        s_.side_by_side ? GradientsSideBySide(gradients[0], attention_.shape())
                        : AttentionGradients<Number>{gradients[0], gradients[1], gradients[2]},
        In(attention_scratch_)));
    for (int i = 0; i < s_.inputs(); ++i) {
      PutBack(ElementsOf(i), gradients[i], tape.grad_input(i));
    }
    return cuda_.Check("backward of an attention");
  }

 private:
  template <typename T>
  T* In(const Place<T>& place) const {
    return place.in(cuda_.layer_scratch().data());
  }

  // What attention reads: `values`, or a copy of them.
  const Number* Operand(int64_t count, const float* values, const Place<Number>& copy) const {
    if constexpr (kIsFloat<Number>) {
      return values;
    } else {
      ConvertToBf16(cuda_.stream(), count, values, In(copy));
      return In(copy);
    }
  }
  // Where it writes what goes to `values` in the end.
  Number* Result(float* values, const Place<Number>& copy) const {
    if constexpr (kIsFloat<Number>) {
      return values;
    } else {
      return In(copy);
    }
  }
  // Nowhere if `to` is null.
  void PutBack(int64_t count, const Number* result, float* to) const {
    if constexpr (!kIsFloat<Number>) {
      if (to != nullptr) ConvertToFloat(cuda_.stream(), 1, count, result, nullptr, to);
    }
  }

  AttentionInputs<Number> InputsOf(const Tape& tape) const {
    std::array<const Number*, 3> inputs = {};
    for (int i = 0; i < s_.inputs(); ++i) {
      inputs[i] = Operand(ElementsOf(i), tape.input(i), inputs_[i]);
    }
    AttentionInputs<Number> result = {inputs[0], inputs[1], inputs[2]};
    if (s_.side_by_side) result = SideBySide(inputs[0], attention_.shape());
    if (s_.has_lengths) result.lengths = tape.input<int32_t>(s_.inputs());
    if (s_.has_positions) result.positions = tape.input<int32_t>(s_.inputs());
    return result;
  }

  // Of an input.
  int64_t ElementsOf(int input) const { return s_.elements(static_cast<Part>(input)); }

  CudaContext& cuda_;
  const Sizes s_;
  const ScaledAttention<Number> attention_;
  const std::string fallback_;
  TapeNeeds needs_;
  Place<float> log_sums_;  // stash [samples, heads, queries]
  // Scratch, unless float:
  std::array<Place<Number>, 3> inputs_, grad_inputs_;
  Place<Number> output_, grad_output_;
  Place<char> attention_scratch_;
  int64_t scratch_bytes_ = 0;
};

AttentionShape ShapeOf(const Sizes& s) {
  return {.batch = s.samples,
          .queries = s.queries,
          .keys = s.keys,
          .heads = s.heads,
          .size = s.size,
          .key_value_heads = s.key_value_heads,
          .query_stride = s.query_stride,
          .key_stride = s.key_stride,
          .causal = s.causal,
          .window = s.window};
}

template <typename Number>
MadeKernels Make(CudaContext& context, const Sizes& sizes, ScaledAttention<Number> attention,
                 std::string fallback) {
  auto op = std::make_unique<CudaAttention<Number>>(context, sizes, std::move(attention),
                                                    std::move(fallback));
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(op->scratch_bytes()));
  return op;
}

}  // namespace
}  // namespace attention

MadeKernels MakeAttention(CudaContext& context, const KernelSpec& spec) {
  const attention::Sizes sizes(spec);
  const AttentionShape shape = attention::ShapeOf(sizes);
  const bool is_bounded = sizes.has_lengths || sizes.has_positions;
  std::string fallback;
  if (spec.bf16) {
    PENSTOCK_ASSIGN_OR_RETURN(auto fused,
                              ScaledAttention<Bf16>::Create(context, shape, is_bounded));
    if (fused.is_fused()) return attention::Make(context, sizes, std::move(fused), "");
    fallback = fused.why_not_fused();
  }
  PENSTOCK_ASSIGN_OR_RETURN(auto plain, ScaledAttention<float>::Create(context, shape, is_bounded));
  return attention::Make(context, sizes, std::move(plain), std::move(fallback));
}

}  // namespace penstock::cuda
