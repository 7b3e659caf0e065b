// AffineOperands: what the products of a map with a bias read on a GPU (compute/ops/affine.h), and the gradient of the bias.
//
// Thread safety: none; the thread that owns the back-end.
#pragma once

#include "compute/cuda/context.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/number.h"
#include "compute/ops/affine.h"

namespace penstock::cuda {

template <typename Number>
class AffineOperands {
 public:
  using Sizes = typename AffineLayout<Number>::Sizes;

  // Places what a pass needs for itself in `scratch`. REQUIRES: `context` outlives it.
  AffineOperands(CudaContext& context, const Sizes& sizes, BlockLayout& scratch)
      : cuda_(context),
        layout_(sizes),
        sums_workspace_(scratch.Add<float>(
            sizes.has_bias ? ColumnSumsWorkspaceFloats(sizes.rows, sizes.outputs) : 0)) {}

  TapeNeeds needs() const { return layout_.needs(); }

  // In F and in I, before the products.
  void TakeInput(const Tape& tape) const {
    layout_.input().Copy(tape, [this](int64_t count, const float* from, auto* to) {
      ConvertToBf16(cuda_.stream(), count, from, to);
    });
  }
  // `sums`: those of the gradient's columns, if there is a bias; without it W has to write them (BiasSums).
  void TakeGradient(const Tape& tape, bool sums = true) const {
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), layout_.gradient_elements(), tape.gradient(),
                    layout_.GradientCopy(tape));
    }
    const Sizes& s = layout_.sizes();
    if (!s.has_bias || !sums) return;
    ColumnSums(cuda_.stream(), s.rows, s.outputs, tape.gradient(), layout_.BiasSums(tape),
               sums_workspace_.in(cuda_.layer_scratch().data()));
  }

  const Number* Input(const Tape& tape) const { return layout_.input().In(tape); }
  const Number* Gradient(const Tape& tape) const { return layout_.Gradient(tape); }
  // REQUIRES: there is a bias.
  float* BiasSums(const Tape& tape) const { return layout_.BiasSums(tape); }

  // In W, to that parameter, if there is a bias.
  void AddBiasGradient(const GradientView& gradients, int parameter, const Tape& tape) const {
    const Sizes& s = layout_.sizes();
    if (!s.has_bias) return;
    AddInto(cuda_.stream(), s.outputs, layout_.BiasSums(tape), gradients.parameter(parameter));
  }

 private:
  CudaContext& cuda_;
  const AffineLayout<Number> layout_;
  const Place<float> sums_workspace_;  // scratch
};

}  // namespace penstock::cuda
