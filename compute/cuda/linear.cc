#include "compute/cuda/linear.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace penstock::cuda {

template <typename Number>
absl::StatusOr<WeightGradient<Number>> WeightGradient<Number>::Create(CudaContext& context,
                                                                      const LinearShape& s,
                                                                      int parameter,
                                                                      bool has_bias) {
  WeightGradient gradient;
  gradient.parameter_ = parameter;
  gradient.outputs_first_ = s.outputs_first;
  const Fp8Formats formats = s.formats();
  ProductShape shape = {.rows = s.outputs_first ? s.outputs : s.inputs,
                        .columns = s.outputs_first ? s.inputs : s.outputs,
                        .inner = s.rows,
                        .transposed_left = true,
                        .accumulate = true,
                        .left_stride = s.outputs_first ? s.output_stride : 0,
                        .right_stride = s.outputs_first ? 0 : s.output_stride,
                        .operands = kTypeOf<Number>,
                        .left_fp8 = s.outputs_first ? formats.gradients : formats.values,
                        .right_fp8 = s.outputs_first ? formats.values : formats.gradients};
  const bool wants_sums = has_bias && !kIsFloat<Number> && !shape.in_fp8();
  if (wants_sums) shape.epilogue = s.outputs_first ? Epilogue::kSumsOfLeft : Epilogue::kSumsOfRight;
  absl::StatusOr<MatrixProduct> made = MatrixProduct::Create(context, shape);
  gradient.sums_outputs_ = wants_sums && made.ok();
  if (wants_sums && absl::IsUnimplemented(made.status())) {
    shape.epilogue = Epilogue::kNone;
    made = MatrixProduct::Create(context, shape);
  }
  PENSTOCK_RETURN_IF_ERROR(made.status());
  gradient.product_ = *std::move(made);
  return gradient;
}

template <typename Number>
absl::Status WeightGradient<Number>::Add(const GradientView& gradients, const Number* x,
                                         const Number* dy, float alpha) const {
  return AddTo(gradients.parameter(parameter_), x, dy, alpha);
}

template <typename Number>
absl::Status WeightGradient<Number>::AddAndSum(const GradientView& gradients, const Number* x,
                                               const Number* dy, float* sums) const {
  PENSTOCK_CHECK(sums_outputs_);
  return product_.Run({.left = outputs_first_ ? dy : x,
                       .right = outputs_first_ ? x : dy,
                       .result = gradients.parameter(parameter_),
                       .sums = sums});
}

template <typename Number>
absl::Status WeightGradient<Number>::AddTo(float* gradient, const Number* x, const Number* dy,
                                           float alpha) const {
  PENSTOCK_CHECK(!sums_outputs_);
  return product_.Run({.left = outputs_first_ ? dy : x,
                       .right = outputs_first_ ? x : dy,
                       .result = gradient,
                       .alpha = alpha});
}

template class WeightGradient<float>;
template class WeightGradient<Bf16>;

}  // namespace penstock::cuda
