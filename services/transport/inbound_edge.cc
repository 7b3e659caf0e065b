#include "services/transport/inbound_edge.h"

#include "absl/strings/str_cat.h"
#include "services/transport/stream_end.h"
#include "worker/acquire.h"

namespace penstock {

absl::Status InboundEdge::Attach(std::shared_ptr<StreamEnd> stream) {
  MutexLock lock(mutex_);
  if (stream_ != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(options_.key.ToString(), " already has a stream"));
  }
  stream_ = std::move(stream);
  credits_owed_ = options_.capacity;
  return absl::OkStatus();
}

absl::StatusOr<Tensor> InboundEdge::Acquire(DType dtype, const Shape& shape) {
  MutexLock lock(mutex_);
  if (pool_ == nullptr) return absl::AbortedError("the run is over");
  return AcquireTensor(*pool_, dtype, shape);
}

absl::Status InboundEdge::Deliver(Message message) {
  bytes_received_.fetch_add(message.tensor.size_bytes(), std::memory_order_relaxed);
  messages_received_.fetch_add(1, std::memory_order_relaxed);
  return mailbox_.TryPush(std::move(message));
}

int32_t InboundEdge::TakeCredits() {
  MutexLock lock(mutex_);
  return std::exchange(credits_owed_, 0);
}

absl::StatusOr<Message> InboundEdge::Pop(absl::Time deadline) {
  absl::StatusOr<Message> message = mailbox_.Pop(deadline);
  if (!message.ok()) return message;
  std::shared_ptr<StreamEnd> stream;
  {
    MutexLock lock(mutex_);
    ++credits_owed_;
    stream = stream_;
  }
  if (stream != nullptr) stream->Wake();
  return message;
}

void InboundEdge::End(const absl::Status& reason) {
  std::shared_ptr<StreamEnd> stream;
  {
    MutexLock lock(mutex_);
    pool_ = nullptr;
    if (!ended_.has_value()) ended_ = reason;
    stream = stream_;
  }
  mailbox_.Cancel(reason.ok() ? absl::AbortedError("the edge is closed") : reason);
  if (stream != nullptr) stream->Wake();
}

std::optional<absl::Status> InboundEdge::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

}  // namespace penstock
