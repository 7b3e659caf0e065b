// Linear: the three matrix products of a linear map y = x W over the rows of a microbatch.
//
// x, W and the gradient of y are Number. The caller chooses the output: the products of F and I as they
// need it, the gradient of the weight always float and added.
#pragma once

#include "absl/status/statusor.h"
#include "compute/cuda/number.h"
#include "compute/cuda/product.h"

namespace penstock::cuda {

struct LinearShape {
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool outputs_first = false;  // the weight is [outputs, inputs], as embeddings are
  int64_t output_stride = 0;   // numbers from row to row of y and its gradient; 0: dense
  // The products read fp8, where it fits. REQUIRES, if so: Number is Bf16; no stride.
  bool fp8 = false;

  Fp8Formats formats() const { return Fp8FormatsOf(fp8, rows, inputs, outputs); }
};

// y = x W.
template <typename Number>
ProductShape ForwardShape(const LinearShape& s, cudaDataType_t result,
                          Epilogue epilogue = Epilogue::kNone) {
  return {.rows = s.rows,
          .columns = s.outputs,
          .inner = s.inputs,
          .transposed_right = s.outputs_first,
          .result_stride = s.output_stride,
          .operands = kTypeOf<Number>,
          .result = result,
          .epilogue = epilogue,
          .left_fp8 = s.formats().values,
          .right_fp8 = s.formats().values};
}

// dx = dy W^T.
template <typename Number>
ProductShape BackwardInputShape(const LinearShape& s, cudaDataType_t result,
                                Epilogue epilogue = Epilogue::kNone) {
  return {.rows = s.rows,
          .columns = s.inputs,
          .inner = s.outputs,
          .transposed_right = !s.outputs_first,
          .left_stride = s.output_stride,
          .operands = kTypeOf<Number>,
          .result = result,
          .epilogue = epilogue,
          .left_fp8 = s.formats().gradients,
          .right_fp8 = s.formats().values};
}

// dW += x^T dy, or with the outputs first dW += dy^T x; for maps with a bias also its gradient, the sums of dy's columns, where
// cuBLASLt adds them up while it reads dy.
template <typename Number>
class WeightGradient {
 public:
  WeightGradient() = default;
  // `parameter`: number of the weight in the layer.
  static absl::StatusOr<WeightGradient> Create(CudaContext& context, const LinearShape& s,
                                               int parameter, bool has_bias = false);
  // Whether the product writes the sums, too. Those in fp8 do not, because they read a rounded dy; those of f32 have our own
  // order of sums.
  bool sums_outputs() const { return sums_outputs_; }
  // REQUIRES, of this and AddTo: !sums_outputs().
  absl::Status Add(const GradientView& gradients, const Number* x, const Number* dy,
                   float alpha = 1.0f) const;
  // The same, and writes the sums of dy's columns [outputs]. REQUIRES: sums_outputs().
  absl::Status AddAndSum(const GradientView& gradients, const Number* x, const Number* dy,
                         float* sums) const;
  // The same to an array.
  absl::Status AddTo(float* gradient, const Number* x, const Number* dy, float alpha = 1.0f) const;

 private:
  int parameter_ = 0;
  bool outputs_first_ = false;
  bool sums_outputs_ = false;
  MatrixProduct product_;
};

extern template class WeightGradient<float>;
extern template class WeightGradient<Bf16>;

}  // namespace penstock::cuda
