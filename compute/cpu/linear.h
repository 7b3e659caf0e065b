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
  int64_t chunk = 0;  // rows of a product of F and I, see ChunkOf. REQUIRES: a part of `rows`
  int64_t inputs = 0;
  int64_t outputs = 0;
  bool outputs_first = false;  // the weight is [outputs, inputs], as embeddings are
  bool adds_to_input = false;  // BackwardInput adds to dx
  bool in_chunks = false;      // passes are those of Chunks; otherwise those of all rows
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

  // y [rows, outputs] = x [rows, inputs] W. REQUIRES: not LinearShape::in_chunks.
  void Forward(const WeightView& weights, const Number* x, float* y) const;
  // dx [rows, inputs] = (or +=) dy [rows, outputs] W^T. REQUIRES: as Forward.
  void BackwardInput(const WeightView& weights, const Number* dy, float* dx) const;

  // The same for a pass that does other work between its chunks: each Run has `chunk` rows. Good while the weights and the
  // memory are.
  class Chunks {
   public:
    void Run(const Number* in, float* out) const { product_->RunPrepared(in, prepared_, out); }

   private:
    friend class Linear;
    Chunks(const MatrixProduct& product, const void* weight, void* memory)
        : product_(&product), prepared_(product.Prepare(weight, memory)) {}

    const MatrixProduct* product_;
    const void* prepared_;
  };
  // `memory`: chunks_bytes(), at a multiple of 64. REQUIRES: LinearShape::in_chunks.
  int64_t chunks_bytes() const;
  Chunks ForwardChunks(const WeightView& weights, void* memory) const;
  Chunks BackwardInputChunks(const WeightView& weights, void* memory) const;

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
