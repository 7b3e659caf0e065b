#include "compute/cpu/linear.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr int64_t kChunkMin =
    128;  // fewer rows cost more for unpacking weights than the cache gains
constexpr int64_t kChunkMax = 512;

}  // namespace

int64_t ChunkOf(int64_t rows) {
  for (int64_t chunk = std::min(rows, kChunkMax); chunk >= kChunkMin; --chunk) {
    if (rows % chunk == 0) {
      return chunk;
    }
  }
  return rows;
}

int64_t ChunkOf(const KernelSpec& spec) { return spec.fp8 ? spec.rows() : ChunkOf(spec.rows()); }

template <typename Number>
absl::StatusOr<Linear<Number>> Linear<Number>::Create(CpuContext& context, const LinearShape& shape,
                                                      int parameter) {
  const auto type =
      std::is_same_v<Number, float> ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  ProductShape forward{shape.chunk, shape.outputs, shape.inputs};
  forward.transposed_right = shape.outputs_first;
  ProductShape backward_input{shape.chunk, shape.inputs, shape.outputs};
  backward_input.transposed_right = !shape.outputs_first;
  backward_input.accumulate = shape.adds_to_input;
  forward.prepared = backward_input.prepared = shape.in_chunks;
  ProductShape backward_weight{shape.inputs, shape.outputs, shape.rows};
  if (shape.outputs_first) {
    std::swap(backward_weight.rows, backward_weight.columns);
  }
  backward_weight.transposed_left = true;
  backward_weight.accumulate = true;
  PENSTOCK_CHECK(shape.rows % shape.chunk == 0);
  PENSTOCK_CHECK(!shape.fp8 || shape.chunk == shape.rows);
  const Fp8Formats formats = shape.formats();
  forward.left_fp8 = forward.right_fp8 = backward_input.right_fp8 = formats.values;
  backward_input.left_fp8 = formats.gradients;
  backward_weight.left_fp8 = shape.outputs_first ? formats.gradients : formats.values;
  backward_weight.right_fp8 = shape.outputs_first ? formats.values : formats.gradients;

  Linear linear;
  linear.parameter_ = parameter;
  linear.shape_ = shape;
  PENSTOCK_ASSIGN_OR_RETURN(linear.forward_, MatrixProduct::Create(context, forward, type));
  PENSTOCK_ASSIGN_OR_RETURN(linear.backward_input_,
                            MatrixProduct::Create(context, backward_input, type));
  PENSTOCK_ASSIGN_OR_RETURN(linear.backward_weight_,
                            MatrixProduct::Create(context, backward_weight, type));
  return linear;
}

template <typename Number>
const void* Linear<Number>::Weight(const WeightView& weights) const {
  if constexpr (std::is_same_v<Number, float>) {
    return weights.parameter(parameter_);
  } else {
    return weights.bf16_parameter(parameter_);
  }
}

template <typename Number>
void Linear<Number>::Forward(const WeightView& weights, const Number* x, float* y) const {
  forward_.RunAll(shape_.rows / shape_.chunk, x, Weight(weights), y);
}

template <typename Number>
void Linear<Number>::BackwardInput(const WeightView& weights, const Number* dy, float* dx) const {
  backward_input_.RunAll(shape_.rows / shape_.chunk, dy, Weight(weights), dx);
}

template <typename Number>
int64_t Linear<Number>::chunks_bytes() const {
  return std::max(forward_.prepared_bytes(), backward_input_.prepared_bytes());
}

template <typename Number>
typename Linear<Number>::Chunks Linear<Number>::ForwardChunks(const WeightView& weights,
                                                              void* memory) const {
  return Chunks(forward_, Weight(weights), memory);
}

template <typename Number>
typename Linear<Number>::Chunks Linear<Number>::BackwardInputChunks(const WeightView& weights,
                                                                    void* memory) const {
  return Chunks(backward_input_, Weight(weights), memory);
}

template <typename Number>
void Linear<Number>::BackwardWeight(const GradientView& gradients, const Number* x,
                                    const Number* dy) const {
  const void* left = shape_.outputs_first ? dy : x;
  const void* right = shape_.outputs_first ? x : dy;
  backward_weight_.Run(left, right, gradients.parameter(parameter_));
}

template class Linear<float>;
template class Linear<Bf16>;

}  // namespace penstock
