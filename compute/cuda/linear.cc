#include "compute/cuda/linear.h"

#include "base/status.h"

namespace penstock::cuda {

template <typename Number>
absl::StatusOr<WeightGradient<Number>> WeightGradient<Number>::Create(CudaContext& context,
                                                                      const LinearShape& s,
                                                                      int parameter) {
  WeightGradient gradient;
  gradient.parameter_ = parameter;
  gradient.outputs_first_ = s.outputs_first;
  PENSTOCK_ASSIGN_OR_RETURN(
      gradient.product_,
      MatrixProduct::Create(context, {.rows = s.outputs_first ? s.outputs : s.inputs,
                                      .columns = s.outputs_first ? s.inputs : s.outputs,
                                      .inner = s.rows,
                                      .transposed_left = true,
                                      .accumulate = true,
                                      .left_stride = s.outputs_first ? s.output_stride : 0,
                                      .right_stride = s.outputs_first ? 0 : s.output_stride,
                                      .operands = kTypeOf<Number>}));
  return gradient;
}

template <typename Number>
absl::Status WeightGradient<Number>::Add(const GradientView& gradients, const Number* x,
                                         const Number* dy, float alpha) const {
  return AddTo(gradients.parameter(parameter_), x, dy, alpha);
}

template <typename Number>
absl::Status WeightGradient<Number>::AddTo(float* gradient, const Number* x, const Number* dy,
                                           float alpha) const {
  return product_.Run({.left = outputs_first_ ? dy : x,
                       .right = outputs_first_ ? x : dy,
                       .result = gradient,
                       .alpha = alpha});
}

template class WeightGradient<float>;
template class WeightGradient<Bf16>;

}  // namespace penstock::cuda
