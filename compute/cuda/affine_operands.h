// AffineOperands: what the products of a map with a bias read, be it linear or a convolution: its input and the gradient
// of its output, and the gradient of the bias.
//
// In float the first two are the values themselves. In bf16 F keeps a rounded copy of the input and I one of the gradient,
// which is all that W reads. I sums the gradient of the bias.
//
// Thread safety: none; the thread that owns the back-end.
#pragma once

#include "compute/block_layout.h"
#include "compute/cuda/context.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/number.h"

namespace penstock::cuda {

template <typename Number>
class AffineOperands {
 public:
  struct Sizes {
    int64_t input_elements;
    int64_t rows, outputs;  // of the output
    bool has_bias;
  };

  // Places what a pass needs for itself in `scratch`. REQUIRES: `context` outlives it.
  AffineOperands(CudaContext& context, const Sizes& sizes, BlockLayout& scratch)
      : cuda_(context), s_(sizes) {
    constexpr bool kFloat = kIsFloat<Number>;
    BlockLayout kept, weight_stash;
    input_ = kept.Add<Number>(kFloat ? 0 : s_.input_elements);
    gradient_ = weight_stash.Add<Number>(kFloat ? 0 : s_.rows * s_.outputs);
    bias_sums_ = weight_stash.Add<float>(s_.has_bias ? s_.outputs : 0);
    sums_workspace_ =
        scratch.Add<float>(s_.has_bias ? ColumnSumsWorkspaceFloats(s_.rows, s_.outputs) : 0);
    needs_ = {.kept_bytes = kept.size_bytes(),
              .weight_stash_bytes = weight_stash.size_bytes(),
              .inputs_for_weight = kFloat ? kAllInputs : kNoInputs,
              .grad_output_for_weight = kFloat};
  }

  const TapeNeeds& needs() const { return needs_; }

  // In F and in I, before the products.
  void TakeInput(const Tape& tape) const {
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), s_.input_elements, tape.input(), input_.in(tape.kept));
    }
  }
  void TakeGradient(const Tape& tape) const {
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), s_.rows * s_.outputs, tape.gradient(),
                    gradient_.in(tape.weight_stash));
    }
    if (!s_.has_bias) return;
    ColumnSums(cuda_.stream(), s_.rows, s_.outputs, tape.gradient(),
               bias_sums_.in(tape.weight_stash), sums_workspace_.in(cuda_.layer_scratch().data()));
  }

  const Number* Input(const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return tape.input();
    } else {
      return input_.in(tape.kept);
    }
  }
  const Number* Gradient(const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return tape.gradient();
    } else {
      return gradient_.in(tape.weight_stash);
    }
  }

  // In W, to that parameter, if there is a bias.
  void AddBiasGradient(const GradientView& gradients, int parameter, const Tape& tape) const {
    if (!s_.has_bias) return;
    AddInto(cuda_.stream(), s_.outputs, bias_sums_.in(tape.weight_stash),
            gradients.parameter(parameter));
  }

 private:
  CudaContext& cuda_;
  const Sizes s_;
  TapeNeeds needs_;
  Place<Number> input_;          // kept, unless float
  Place<Number> gradient_;       // weight stash, unless float
  Place<float> bias_sums_;       // weight stash
  Place<float> sums_workspace_;  // scratch
};

}  // namespace penstock::cuda
