// MessageCoder: what a stage sends to another worker, compressed (compute/message_compression.h).
//
// A stage has one for its activations and one for its gradients, where these leave their worker. Both have error feedback: what
// a message left out is added to the tensor of the next microbatch before that is compressed
// (docs/adr/0049-compressed-messages.md).
//
// The serial reference sends through the same coders, in the same order of microbatches.
//
// Thread safety: the executor's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/buffer_pool.h"
#include "compute/message_compression.h"
#include "compute/tensor.h"
#include "job/resolve.h"
#include "model/graph.h"
#include "schedule/topology.h"

namespace penstock {

class MessageCoder {
 public:
  enum class Of : uint8_t { kActivations, kGradients };

  // Of what crosses the cut of `model` before layer `layer`, `samples` of it, as numbers of `dtype`. Null where that travels as
  // it is. REQUIRES: `pool` is of host memory and outlives the coder. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<MessageCoder>> Create(BufferPool& pool,
                                                              const MessageCompression& compression,
                                                              Of of, const ModelGraph& model,
                                                              int layer, int64_t samples,
                                                              DType dtype);

  // The message for `tensor`, whose bytes it takes from the pool. REQUIRES: it is such a tensor. What is between the
  // values of a bundle (model/bundle.h) is nobody's, and counts as 0.
  // Errors: FailedPrecondition (a number is not finite), ResourceExhausted.
  absl::StatusOr<Tensor> Encode(const Tensor& tensor);

  // What messages left out so far, for checkpoints.
  absl::Span<float> left_out() const;

 private:
  struct Gap {
    int64_t first = 0;
    int64_t count = 0;
  };
  MessageCoder(BufferPool& pool, const MessageCompression& compression, int64_t bytes,
               std::vector<Gap> gaps, Tensor numbers);

  BufferPool& pool_;
  const int64_t bytes_;  // of a message
  const std::vector<Gap> gaps_;
  const MessageCompression compression_;
  const Tensor numbers_;  // f32: those to send, and then those left out
};

// Those of one stage; null where what it sends stays on its worker, or travels as it is.
struct StageCoders {
  std::unique_ptr<MessageCoder> activations;
  std::unique_ptr<MessageCoder> gradients;

  // Of stage `id` of the job, which has these layers. Errors: ResourceExhausted.
  static absl::StatusOr<StageCoders> Make(BufferPool& pool, const ResolvedJob& job,
                                          const Topology& topology, StageId id, LayerRange layers);
};

// The message of a tensor of `dtype` and `shape`, as it comes; the same, if it is not compressed.
DType MessageType(const MessageCompression& compression, DType dtype, const Shape& shape);
Shape MessageShape(const MessageCompression& compression, DType dtype, const Shape& shape);
// The tensor of a message. Errors: those of Expand, ResourceExhausted.
absl::StatusOr<Tensor> Decode(BufferPool& pool, const MessageCompression& compression,
                              Tensor message, DType dtype, const Shape& shape);

}  // namespace penstock
