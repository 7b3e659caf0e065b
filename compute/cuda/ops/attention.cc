// Attention: in bf16 through cuDNN where it has an engine, on copies of what its inputs and gradients are in float; else
// as our own kernels compute it in float. I reads the output that F has made.
#include "compute/cuda/attention.h"

#include <array>
#include <utility>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace attention {
namespace {

// What the inputs of the op are.
struct Inputs {
  AttentionShape shape;
  bool side_by_side;  // queries, keys and values are one input
  bool has_lengths;

  int count() const { return side_by_side ? 1 : 3; }  // without the lengths
  int64_t elements(int input) const {
    return shape.batch * (input == 0 ? shape.queries : shape.keys) * shape.stride;
  }
  int64_t output_elements() const { return shape.batch * shape.queries * shape.width(); }
};

// Float, as the values are, or Bf16.
template <typename Number>
class CudaAttention : public OpKernels {
 public:
  CudaAttention(CudaContext& context, const Inputs& inputs, ScaledAttention<Number> attention)
      : cuda_(context), in_(inputs), attention_(std::move(attention)) {
    BlockLayout stash, scratch;
    log_sums_ = stash.Add<float>(attention_.log_sums_floats());
    const auto copy = [&](int64_t elements) {
      return scratch.Add<Number>(kIsFloat<Number> ? 0 : elements);
    };
    for (int i = 0; i < in_.count(); ++i) {
      inputs_[i] = copy(in_.elements(i));
      grad_inputs_[i] = copy(in_.elements(i));
    }
    output_ = copy(in_.output_elements());
    grad_output_ = copy(in_.output_elements());
    attention_scratch_ = scratch.Add<char>(attention_.scratch_bytes());
    scratch_bytes_ = scratch.size_bytes();
    needs_ = {.stash_bytes = stash.size_bytes(),
              .inputs_for_input = kAllInputs,
              .output_for_input = true};
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }
  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    Number* const output = Result(tape.result(), output_);
    PENSTOCK_RETURN_IF_ERROR(attention_.Forward(InputsOf(tape), output, log_sums_.in(tape.stash),
                                                In(attention_scratch_)));
    PutBack(in_.output_elements(), output, tape.result());
    return cuda_.Check("forward of an attention");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    std::array<Number*, 3> gradients = {};
    for (int i = 0; i < in_.count(); ++i)
      gradients[i] = Result(tape.grad_input(i), grad_inputs_[i]);
    PENSTOCK_RETURN_IF_ERROR(attention_.Backward(
        InputsOf(tape), Operand(in_.output_elements(), tape.result(), output_),
        Operand(in_.output_elements(), tape.gradient(), grad_output_), log_sums_.in(tape.stash),
        in_.side_by_side ? GradientsSideBySide(gradients[0], in_.shape.width())
                         : AttentionGradients<Number>{gradients[0], gradients[1], gradients[2]},
        In(attention_scratch_)));
    for (int i = 0; i < in_.count(); ++i) {
      PutBack(in_.elements(i), gradients[i], tape.grad_input(i));
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
    for (int i = 0; i < in_.count(); ++i) {
      inputs[i] = Operand(in_.elements(i), tape.input(i), inputs_[i]);
    }
    AttentionInputs<Number> result = {inputs[0], inputs[1], inputs[2]};
    if (in_.side_by_side) result = SideBySide(inputs[0], in_.shape.width());
    if (in_.has_lengths) result.lengths = tape.input<int32_t>(in_.count());
    return result;
  }

  CudaContext& cuda_;
  const Inputs in_;
  const ScaledAttention<Number> attention_;
  TapeNeeds needs_;
  Place<float> log_sums_;  // stash [samples, heads, queries]
  // Scratch, unless float:
  std::array<Place<Number>, 3> inputs_, grad_inputs_;
  Place<Number> output_, grad_output_;
  Place<char> attention_scratch_;
  int64_t scratch_bytes_ = 0;
};

Inputs InputsOf(const KernelSpec& spec) {
  const bool side_by_side = spec.inputs.size() < 3;
  const int64_t heads = spec.attributes().integer("heads");
  return {.shape = {.batch = spec.samples,
                    .queries = spec.inputs[0].dims[0],
                    .keys = spec.inputs[side_by_side ? 0 : 1].dims[0],
                    .heads = heads,
                    .size = spec.node.output.dims.back() / heads,
                    .stride = spec.width(),
                    .causal = spec.attributes().flag("causal")},
          .side_by_side = side_by_side,
          .has_lengths = spec.inputs.size() % 2 == 0};
}

template <typename Number>
MadeKernels Make(CudaContext& context, const Inputs& inputs, ScaledAttention<Number> attention) {
  auto op = std::make_unique<CudaAttention<Number>>(context, inputs, std::move(attention));
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(op->scratch_bytes()));
  return op;
}

}  // namespace
}  // namespace attention

MadeKernels MakeAttention(CudaContext& context, const KernelSpec& spec) {
  const attention::Inputs inputs = attention::InputsOf(spec);
  if (spec.bf16) {
    PENSTOCK_ASSIGN_OR_RETURN(
        auto fused, ScaledAttention<Bf16>::Create(context, inputs.shape, inputs.has_lengths));
    if (fused.is_fused()) return attention::Make(context, inputs, std::move(fused));
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      auto plain, ScaledAttention<float>::Create(context, inputs.shape, inputs.has_lengths));
  return attention::Make(context, inputs, std::move(plain));
}

}  // namespace penstock::cuda
