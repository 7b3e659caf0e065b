// HeadAttention: both passes of attention over a head, on one thread. In f32 they are kernels (kernels/attention.cc). In
// bf16 their seven products are oneDNN's, of blocks of queries and blocks of keys: they read queries, keys, values, weights
// and gradients rounded to bf16, and sum in float. Softmax is computed in float. Heads of fewer than 128 queries or keys, or with a window below 256, are
// computed in f32 in either case.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "compute/cpu/context.h"
#include "compute/cpu/kernels/kernels.h"

namespace penstock {

struct HeadShape {
  int64_t queries, keys, size;  // queries and keys: at most
  int64_t window = 0;           // as of AttentionHead
};

class HeadAttention {
 public:
  virtual ~HeadAttention() = default;

  virtual int64_t workspace_bytes() const = 0;  // of a thread, for both passes

  // As the kernels Attention and AttentionGradient. REQUIRES: no more queries and keys than it is made for, the same size
  // and window; no two calls at a time with the same thread (of Threads::For) or workspace.
  virtual void Forward(const AttentionHead& head, float* output, int64_t output_stride,
                       float* log_sums, int thread, void* workspace) const = 0;
  virtual void Backward(const AttentionHead& head, const float* incoming, int64_t incoming_stride,
                        const float* log_sums, const AttentionHeadGradient& gradient, int thread,
                        void* workspace) const = 0;
};

// For as many threads as the context has. REQUIRES: no pass is running. bf16: only where the context has such products.
// Errors: those of MatrixProduct::Create.
absl::StatusOr<std::unique_ptr<HeadAttention>> MakeHeadAttention(const CpuContext& context,
                                                                 const HeadShape& shape, bool bf16);

}  // namespace penstock
