// Linear: the three matrix products of a linear map y = x W over the rows of a microbatch.
//
// x and y's gradient are float or bf16 (Number), as is the weight that is read; results are float. Rows
// are taken in equal chunks that fit the cache, so that what surrounds a product works on data that is
// still there.
#pragma once

#include <type_traits>

#include "absl/status/statusor.h"
#include "compute/cpu/product.h"
#include "compute/op_kernels.h"

namespace penstock {

struct LinearShape {
  int64_t rows = 0;   // of the microbatch: batch * time
  int64_t chunk = 0;  // rows of one call of Forward or BackwardInput; see ChunkOf
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool outputs_first = false;  // the weight is [outputs, inputs], as embeddings are
  bool adds_to_input = false;  // BackwardInput adds to dx
  // Chunks go through ForwardPrepared and BackwardInputPrepared.
  bool prepared = false;
  // Products of all rows read fp8, where it fits. REQUIRES, if so: chunk == rows, Number is Bf16.
  bool fp8 = false;

  Fp8Formats formats() const { return Fp8FormatsOf(fp8, rows, inputs, outputs); }
};

// Rows of a chunk: the largest divisor of `rows` that fits the cache.
int64_t ChunkOf(int64_t rows);
// All of them for nodes in fp8, whose operands have one scale for a microbatch.
int64_t ChunkOf(const KernelSpec& spec);

template <typename Number>
class Linear {
  static_assert(std::is_same_v<Number, float> || std::is_same_v<Number, Bf16>);

 public:
  Linear() = default;
  // `parameter`: number of the weight in the layer. Errors: as MatrixProduct::Create.
  static absl::StatusOr<Linear> Create(CpuContext& context, const LinearShape& shape,
                                       int parameter);

  // y [chunk, outputs] = x [chunk, inputs] W. REQUIRES: not LinearShape::prepared.
  void Forward(const WeightView& weights, const Number* x, float* y) const;
  // dx [chunk, inputs] = (or +=) dy [chunk, outputs] W^T. REQUIRES: as Forward.
  void BackwardInput(const WeightView& weights, const Number* dy, float* dx) const;
  // The same for the chunks of a pass, with the weight as their products read it: packed once, into `memory` of
  // prepared_bytes(), where they gain by it.
  int64_t prepared_bytes() const;
  const void* PrepareForward(const WeightView& weights, void* memory) const;
  const void* PrepareBackwardInput(const WeightView& weights, void* memory) const;
  void ForwardPrepared(const void* prepared, const Number* x, float* y) const;
  void BackwardInputPrepared(const void* prepared, const Number* dy, float* dx) const;
  // The same over all rows. REQUIRES: not LinearShape::prepared.
  void ForwardOfRows(const WeightView& weights, const Number* x, float* y) const;
  void BackwardInputOfRows(const WeightView& weights, const Number* dy, float* dx) const;
  // dW += x^T dy, over all rows.
  void BackwardWeight(const GradientView& gradients, const Number* x, const Number* dy) const;

 private:
  const void* Weight(const WeightView& weights) const;

  int parameter_ = 0;
  LinearShape shape_;
  MatrixProduct forward_, backward_input_, backward_weight_;
};

extern template class Linear<float>;
extern template class Linear<Bf16>;

}  // namespace penstock
