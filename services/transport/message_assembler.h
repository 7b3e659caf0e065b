// MessageAssembler: puts the chunks of one edge together into tensors, and trusts none of them.
//
// Every chunk is checked against the edge's limit and window and against the chunks before it, before
// memory is taken or written. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "services/transport/frame.h"
#include "services/transport/gather.h"
#include "worker/mailbox.h"

namespace penstock {

class MessageAssembler {
 public:
  // Memory for one tensor; an error ends the edge.
  using Acquire = std::function<absl::StatusOr<Tensor>(DType, const Shape&)>;

  MessageAssembler(const StreamKey& key, int64_t tensor_bytes_max, Acquire acquire)
      : key_(key), tensor_bytes_max_(tensor_bytes_max), acquire_(std::move(acquire)) {}

  // Errors: FailedPrecondition (another job, epoch or edge).
  absl::Status CheckKey(const FrameHeader& header) const;
  // Takes one chunk; gives the message when it is complete.
  // Errors: as CheckKey, InvalidArgument (over the limit, or not the chunk that follows), DataLoss (checksum;
  // both are named), or Acquire's.
  absl::StatusOr<std::optional<Message>> Take(const FrameHeader& header, FrameReader& frame);
  // Takes the frame of an exported tensor; its memory stays where it is. Errors: as Take.
  absl::StatusOr<Message> TakeExported(const FrameHeader& header, FrameReader& frame);
  // Drops the chunks so far: their message will come again.
  void Reset() { message_ = Message(); }

 private:
  absl::Status CheckFirst(const FrameHeader& header) const;
  absl::Status CheckNext(const FrameHeader& header) const;

  const StreamKey key_;
  const int64_t tensor_bytes_max_;
  const Acquire acquire_;
  // The message that the chunks so far belong to; between messages the tensor is empty.
  Message message_;
  int64_t received_bytes_ = 0;
};

}  // namespace penstock
