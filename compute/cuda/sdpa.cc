#include "compute/cuda/sdpa.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace penstock::cuda {
namespace {

// Keys of a tile. From this version on cuDNN masks the rest of a tile itself.
constexpr int64_t kTileKeys = 128;
constexpr size_t kOldestWithPartialTiles = 91600;
// Before, cuDNN expected zeros in the memory where gradients of queries are summed.
constexpr size_t kOldestThatClearsSums = 90600;

// The tensors of attention are [batch, heads, queries or keys, size], wherever their elements are. In products, each head
// of keys and values stands for as many heads as read it.
struct Layouts {
  TensorLayout query;
  TensorLayout key;       // and value
  TensorLayout head_key;  // as key, by head of the queries
  TensorLayout output;
  TensorLayout sums;        // as query, in float
  TensorLayout scores;      // [batch, heads, queries, keys], never stored
  TensorLayout statistics;  // [batch, heads, queries, 1]
};

Layouts LayoutsOf(const AttentionShape& s) {
  const auto rows = [&s](int64_t heads, int64_t steps, int64_t stride) {
    return TensorLayout{{s.batch, heads, steps, s.size}, {steps * stride, s.size, stride, 1}};
  };
  return {.query = rows(s.heads, s.queries, s.query_stride),
          .key = rows(s.key_value_heads, s.keys, s.key_stride),
          .head_key = DenseLayout({s.batch, s.heads, s.keys, s.size}),
          .output = rows(s.heads, s.queries, s.width()),
          .sums = DenseLayout({s.batch, s.heads, s.queries, s.size}),
          .scores = DenseLayout({s.batch, s.heads, s.queries, s.keys}),
          .statistics = DenseLayout({s.batch, s.heads, s.queries, 1})};
}

GraphTensor ScaleOf(const AttentionShape& shape, Graph& g) {
  return g.Constant(static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.size))));
}

// With minus infinity where the comparison of left and right is false.
GraphTensor MaskedUnless(cudnnPointwiseMode_t compare, const GraphTensor& left,
                         const GraphTensor& right, Graph& g, const GraphTensor& scores) {
  const GraphTensor visible = g.Virtual(scores.layout, CUDNN_DATA_BOOLEAN);
  g.Pointwise(compare, {left, right}, visible);
  const GraphTensor hidden = g.Constant(-std::numeric_limits<float>::infinity());
  return g.Pointwise(CUDNN_POINTWISE_BINARY_SELECT, {scores, hidden, visible});
}

// With minus infinity where the shape is causal and the key comes after the query, or before its window.
GraphTensor Masked(const AttentionShape& shape, Graph& g, const GraphTensor& scores) {
  if (!shape.causal) return scores;
  const GraphTensor query_step = g.Index(scores, 2);
  const GraphTensor key_step = g.Index(scores, 3);
  const GraphTensor causal = MaskedUnless(CUDNN_POINTWISE_CMP_GE, query_step, key_step, g, scores);
  if (shape.window == 0) return causal;
  // Written as NVIDIA's frontend writes it, the sum in float: key + window > query.
  const GraphTensor query_again = g.Index(causal, 2);
  const GraphTensor key_again = g.Index(causal, 3);
  const GraphTensor window = g.Constant(static_cast<float>(shape.window));
  const GraphTensor window_end = g.Pointwise(CUDNN_POINTWISE_ADD, {key_again, window});
  return MaskedUnless(CUDNN_POINTWISE_CMP_GT, window_end, query_again, g, causal);
}

// The gradient of keys or values: by head of the queries, then summed over the heads that share them.
void ProductForKeys(const AttentionShape& shape, const Layouts& l, Graph& g,
                    const GraphTensor& left, const GraphTensor& right, const GraphTensor& to) {
  if (shape.group() == 1) return g.MatrixProduct(left, right, to);
  const GraphTensor by_head = g.Virtual(l.head_key, CUDNN_DATA_BFLOAT16);
  g.MatrixProduct(left, right, by_head);
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, by_head, to);
}

// Memory: query, key, value, output, stats.
Graph ForwardGraph(const AttentionShape& shape) {
  const Layouts l = LayoutsOf(shape);
  Graph g;
  const GraphTensor query = g.Memory(l.query, CUDNN_DATA_BFLOAT16);
  const GraphTensor key_transposed = g.Memory(Transposed(l.key), CUDNN_DATA_BFLOAT16);
  const GraphTensor value = g.Memory(l.key, CUDNN_DATA_BFLOAT16);
  const GraphTensor output = g.Memory(l.output, CUDNN_DATA_BFLOAT16);
  const GraphTensor stats = g.Memory(l.statistics, CUDNN_DATA_FLOAT);

  const GraphTensor products = g.Virtual(l.scores, CUDNN_DATA_FLOAT);
  g.MatrixProduct(query, key_transposed, products);
  const GraphTensor scaled = g.Pointwise(CUDNN_POINTWISE_MUL, {products, ScaleOf(shape, g)});
  const GraphTensor scores = Masked(shape, g, scaled);

  const GraphTensor maximum = g.Reduce(CUDNN_REDUCE_TENSOR_MAX, scores, l.statistics);
  const GraphTensor shifted = g.Pointwise(CUDNN_POINTWISE_SUB, {scores, maximum});
  const GraphTensor powers = g.Pointwise(CUDNN_POINTWISE_EXP, {shifted});
  const GraphTensor sum = g.Reduce(CUDNN_REDUCE_TENSOR_ADD, powers, l.statistics);
  const GraphTensor log_sum = g.Pointwise(CUDNN_POINTWISE_LOG, {sum});
  g.Pointwise(CUDNN_POINTWISE_ADD, {maximum, log_sum}, stats);

  const GraphTensor probabilities = g.Virtual(l.scores, CUDNN_DATA_BFLOAT16);
  g.Pointwise(CUDNN_POINTWISE_DIV, {powers, sum}, probabilities);
  g.MatrixProduct(probabilities, value, output);
  return g;
}

// Memory: query, key, value, output, grad_output, stats, grad_query, grad_key, grad_value, the float workspace
// [batch, heads, queries] of grad_output . output, and with sums the float workspace [batch, heads, queries, size] of
// the gradient of the queries.
Graph BackwardGraph(const AttentionShape& shape, bool has_sums) {
  const Layouts l = LayoutsOf(shape);
  Graph g;
  const GraphTensor query = g.Memory(l.query, CUDNN_DATA_BFLOAT16);
  const GraphTensor key_transposed = g.Memory(Transposed(l.key), CUDNN_DATA_BFLOAT16);
  const GraphTensor value_transposed = g.Memory(Transposed(l.key), CUDNN_DATA_BFLOAT16);
  const GraphTensor output = g.Memory(l.output, CUDNN_DATA_BFLOAT16);
  const GraphTensor grad_output = g.Memory(l.output, CUDNN_DATA_BFLOAT16);
  const GraphTensor stats = g.Memory(l.statistics, CUDNN_DATA_FLOAT);
  const GraphTensor grad_query = g.Memory(l.query, CUDNN_DATA_BFLOAT16);
  const GraphTensor grad_key = g.Memory(l.key, CUDNN_DATA_BFLOAT16);
  const GraphTensor grad_value = g.Memory(l.key, CUDNN_DATA_BFLOAT16);
  const GraphTensor dots = g.Memory(l.statistics, CUDNN_DATA_FLOAT);
  const GraphTensor scale = ScaleOf(shape, g);

  const GraphTensor shares = g.Pointwise(CUDNN_POINTWISE_MUL, {grad_output, output});
  const GraphTensor sums = g.Reduce(CUDNN_REDUCE_TENSOR_ADD, shares, l.statistics);
  // The factor, which is that of dropout, keeps the graph in the form of NVIDIA's frontend.
  g.Pointwise(CUDNN_POINTWISE_MUL, {sums, g.Constant(1.0f)}, dots);

  const GraphTensor products = g.Virtual(l.scores, CUDNN_DATA_FLOAT);
  g.MatrixProduct(query, key_transposed, products);
  const GraphTensor scaled = g.Pointwise(CUDNN_POINTWISE_MUL, {products, scale});
  const GraphTensor logs = g.Pointwise(CUDNN_POINTWISE_SUB, {scaled, stats});
  const GraphTensor probabilities = g.Pointwise(CUDNN_POINTWISE_EXP, {Masked(shape, g, logs)});
  ProductForKeys(shape, l, g, g.Transpose(probabilities, CUDNN_DATA_BFLOAT16), grad_output,
                 grad_value);

  const GraphTensor grad_probabilities = g.Virtual(l.scores, CUDNN_DATA_FLOAT);
  g.MatrixProduct(grad_output, value_transposed, grad_probabilities);
  const GraphTensor centred = g.Pointwise(CUDNN_POINTWISE_SUB, {grad_probabilities, dots});
  const GraphTensor grad_scaled = g.Pointwise(CUDNN_POINTWISE_MUL, {centred, probabilities});
  const GraphTensor grad_products = g.Pointwise(CUDNN_POINTWISE_MUL, {grad_scaled, scale});
  ProductForKeys(shape, l, g, g.Transpose(grad_products, CUDNN_DATA_BFLOAT16), query, grad_key);
  const GraphTensor key = g.Transpose(key_transposed, CUDNN_DATA_FLOAT);
  // Straight into the result: engines then store the gradient of the scores and sum it afterwards. With a float sum in
  // memory before the result they need no such storage, but their blocks add in the order in which they finish, and
  // cuDNN does not mark that.
  if (!has_sums) {
    g.MatrixProduct(grad_products, key, grad_query);
    return g;
  }
  const GraphTensor grad_query_sums = g.Memory(l.sums, CUDNN_DATA_FLOAT);
  g.MatrixProduct(grad_products, key, grad_query_sums);
  g.Pointwise(CUDNN_POINTWISE_IDENTITY, {grad_query_sums}, grad_query);
  return g;
}

// Whether the float sums of the gradient of the queries take less memory than the gradient of the scores in bf16.
bool SumsAreSmaller(const AttentionShape& shape) {
  return shape.size * int64_t{sizeof(float)} < shape.keys * int64_t{sizeof(Bf16)};
}

absl::Status CheckShape(const AttentionShape& shape) {
  if (shape.keys % kTileKeys != 0 && cudnnGetVersion() < kOldestWithPartialTiles) {
    return absl::UnimplementedError(absl::StrFormat(
        "needs cuDNN 9.16 or newer, or keys that are a multiple of %d; this is version %d",
        kTileKeys, cudnnGetVersion()));
  }
  if (shape.size % 8 != 0) {
    return absl::UnimplementedError("the size of a head is no multiple of 8");
  }
  if (shape.queries < 2 || shape.keys < 2) {
    return absl::UnimplementedError("there are fewer than 2 queries or keys");
  }
  if (shape.window > 0 && shape.queries > shape.keys) {
    return absl::UnimplementedError("some queries see no key: their window lies behind the last");
  }
  return absl::OkStatus();
}

// cuDNN's interface has no const; it does not write inputs.
template <typename T>
void* Input(const T* address) {
  return const_cast<T*>(address);
}

int64_t RoundUp(int64_t bytes) {
  return (bytes + PlanWorkspace::kAlignment - 1) / PlanWorkspace::kAlignment *
         PlanWorkspace::kAlignment;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sdpa>> Sdpa::Create(cudnnHandle_t handle,
                                                   const AttentionShape& shape,
                                                   Repeatability repeatability) {
  return CreateFor({.handle = handle, .repeatability = repeatability}, shape);
}

absl::StatusOr<std::unique_ptr<Sdpa>> Sdpa::CreateFor(const PlanTarget& target,
                                                      const AttentionShape& shape) {
  const auto annotate = [&shape](const absl::Status& status, const char* pass) {
    return Annotate(
        status,
        absl::StrFormat("cuDNN's attention%s of batch %d, %d queries, %d keys, %d heads of %d, %d "
                        "of keys and values, window %d",
                        pass, shape.batch, shape.queries, shape.keys, shape.heads, shape.size,
                        shape.key_value_heads, shape.window));
  };
  PENSTOCK_RETURN_IF_ERROR(annotate(CheckShape(shape), ""));
  absl::StatusOr<Plan> forward = Plan::Create(target, ForwardGraph(shape));
  if (!forward.ok()) return annotate(forward.status(), " (forward)");
  bool has_sums = target.repeatability == Repeatability::kFast && SumsAreSmaller(shape) &&
                  cudnnGetVersion() >= kOldestThatClearsSums;
  absl::StatusOr<Plan> backward = Plan::Create(target, BackwardGraph(shape, has_sums));
  if (has_sums && absl::IsUnimplemented(backward.status())) {
    has_sums = false;
    backward = Plan::Create(target, BackwardGraph(shape, has_sums));
  }
  if (!backward.ok()) return annotate(backward.status(), " (backward)");
  return std::unique_ptr<Sdpa>(
      new Sdpa(shape, *std::move(forward), *std::move(backward), has_sums));
}

Sdpa::Sdpa(const AttentionShape& shape, Plan forward, Plan backward, bool has_sums)
    : shape_(shape),
      has_sums_(has_sums),
      forward_(std::move(forward)),
      backward_(std::move(backward)) {}

int64_t Sdpa::DotsBytes() const {
  return RoundUp(shape_.batch * shape_.heads * shape_.queries * int64_t{sizeof(float)});
}

int64_t Sdpa::SumsBytes() const {
  if (!has_sums_) return 0;
  return RoundUp(shape_.batch * shape_.queries * shape_.width() * int64_t{sizeof(float)});
}

int64_t Sdpa::workspace_bytes() const {
  return std::max(forward_.workspace_bytes(),
                  DotsBytes() + SumsBytes() + backward_.workspace_bytes());
}

absl::Status Sdpa::Forward(cudnnHandle_t handle, const AttentionInputs<Bf16>& inputs, Bf16* output,
                           float* log_sums, void* workspace) const {
  return forward_.Run(
      handle, {Input(inputs.query), Input(inputs.key), Input(inputs.value), output, log_sums},
      workspace);
}

absl::Status Sdpa::Backward(cudnnHandle_t handle, const AttentionInputs<Bf16>& inputs,
                            const Bf16* output, const Bf16* grad_output, const float* log_sums,
                            const AttentionGradients<Bf16>& gradients, void* workspace) const {
  std::byte* const dots = static_cast<std::byte*>(workspace);
  std::byte* const sums = dots + DotsBytes();
  const std::array<void*, 11> addresses = {Input(inputs.query),
                                           Input(inputs.key),
                                           Input(inputs.value),
                                           Input(output),
                                           Input(grad_output),
                                           Input(log_sums),
                                           gradients.query,
                                           gradients.key,
                                           gradients.value,
                                           dots,
                                           sums};
  return backward_.Run(handle, absl::MakeConstSpan(addresses).first(has_sums_ ? 11 : 10),
                       sums + SumsBytes());
}

}  // namespace penstock::cuda
