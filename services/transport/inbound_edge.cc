#include "services/transport/inbound_edge.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
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

absl::Status InboundEdge::TryOffer(const ShareBytes& offer) {
  // Held while it tries, so that the share stays.
  MutexLock lock(mutex_);
  if (share_ == nullptr || offer.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Importer>> importer = share_->Import(offer);
  PENSTOCK_RETURN_IF_ERROR(importer.status());
  importer_ = *std::move(importer);
  imports_ = true;
  path_ = importer_->path();
  return absl::OkStatus();
}

bool InboundEdge::imports() const {
  MutexLock lock(mutex_);
  return imports_;
}

std::string InboundEdge::path() const {
  MutexLock lock(mutex_);
  return path_;
}

absl::Status InboundEdge::Deliver(Message message) {
  if (!message.exported.empty() && !imports()) {
    return absl::InvalidArgumentError(
        absl::StrCat("message ", message.sequence, " is exported, which was not agreed upon"));
  }
  bytes_received_.fetch_add(message.tensor.size_bytes(), std::memory_order_relaxed);
  messages_received_.fetch_add(1, std::memory_order_relaxed);
  return mailbox_.TryPush(std::move(message));
}

int32_t InboundEdge::TakeCredits() {
  MutexLock lock(mutex_);
  return std::exchange(credits_owed_, 0);
}

absl::StatusOr<Message> InboundEdge::Pop(absl::Time deadline) {
  const LinkMeter::TimePoint since = LinkMeter::Now();
  absl::StatusOr<Message> message = mailbox_.Pop(deadline);
  if (message.ok() && message->since > since) meter_.AddWait(since, message->since);
  if (!message.ok()) return message;
  {
    MutexLock lock(mutex_);
    if (!message->exported.empty()) {
      ++unreleased_;
      return message;
    }
    ++(unreleased_ > 0 ? credits_behind_ : credits_owed_);
  }
  WakeStream();
  return message;
}

absl::StatusOr<Importer::Fetched> InboundEdge::Fetch(const Arrival& message) {
  Importer* importer = nullptr;
  {
    MutexLock lock(mutex_);
    importer = importer_.get();  // which only this thread takes away
  }
  return importer->Fetch(message.exported, message.tensor.dtype, message.tensor.shape);
}

void InboundEdge::Release() {
  {
    MutexLock lock(mutex_);
    --unreleased_;
    ++credits_owed_;
    if (unreleased_ == 0) credits_owed_ += std::exchange(credits_behind_, 0);
  }
  WakeStream();
}

void InboundEdge::StopImporting() {
  std::unique_ptr<Importer> importer;
  {
    MutexLock lock(mutex_);
    share_ = nullptr;
    importer = std::move(importer_);
  }
  if (importer == nullptr) return;
  importer.reset();  // waits for its copies, so not with the mutex held
  {
    MutexLock lock(mutex_);
    imports_ = false;
  }
  WakeStream();
}

void InboundEdge::End(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    pool_ = nullptr;
    if (!ended_.has_value()) ended_ = reason;
  }
  mailbox_.Cancel(reason.ok() ? absl::AbortedError("the edge is closed") : reason);
  WakeStream();
}

void InboundEdge::WakeStream() {
  std::shared_ptr<StreamEnd> stream;
  {
    MutexLock lock(mutex_);
    stream = stream_;
  }
  if (stream != nullptr) stream->Wake();
}

std::optional<absl::Status> InboundEdge::ended() const {
  MutexLock lock(mutex_);
  return ended_;
}

}  // namespace penstock
