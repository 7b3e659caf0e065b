#include "services/transport/inbound_edge.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/rpc/limits.h"
#include "services/transport/stream_end.h"
#include "worker/acquire.h"

namespace penstock {

absl::Status InboundEdge::Attach(std::shared_ptr<StreamEnd> stream, int64_t number) {
  std::shared_ptr<StreamEnd> replaced;
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) {
      return absl::AbortedError(
          absl::StrCat(options_.key.ToString(), ": the run failed here: ", failed_.message()));
    }
    PENSTOCK_RETURN_IF_ERROR(Annotate(window_.Open(number), options_.key.ToString()));
    replaced = std::exchange(stream_, std::move(stream));
  }
  if (replaced != nullptr) {
    meter_.AddRedial();
    replaced->Wake();
  }
  return absl::OkStatus();
}

bool InboundEdge::IsNewest(int64_t stream) const {
  MutexLock lock(mutex_);
  return window_.IsNewest(stream);
}

std::optional<absl::Duration> InboundEdge::MarkOpen() {
  MutexLock lock(mutex_);
  if (!std::exchange(opened_, true)) return std::nullopt;
  const auto since = std::exchange(broken_since_, std::nullopt);
  return since.has_value() ? absl::FromChrono(LinkMeter::Now() - *since) : absl::ZeroDuration();
}

bool InboundEdge::MarkBroken(int64_t stream) {
  MutexLock lock(mutex_);
  if (!Awaits(stream)) return false;
  broken_since_ = LinkMeter::Now();
  return true;
}

bool InboundEdge::AwaitsAfter(int64_t stream) const {
  MutexLock lock(mutex_);
  return Awaits(stream);
}

bool InboundEdge::Awaits(int64_t stream) const {
  return window_.IsNewest(stream) && failed_.ok() && !ended_.has_value() && !closed_by_peer_;
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

ReceiveWindow::Verdict InboundEdge::Judge(int64_t stream, const FrameHeader& header) {
  MutexLock lock(mutex_);
  return window_.Judge(stream, header.number, /*is_first_part=*/header.chunk_offset == 0);
}

absl::Status InboundEdge::AskAgain(const absl::Status& damage) {
  MutexLock lock(mutex_);
  const int asked = window_.AskAgain();
  if (asked <= rpc_limits::kTensorAsksMax) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("message number ", window_.progress().received, " of the edge came damaged ",
                   asked, " times; look at the network between the two: ", damage.message()));
}

bool InboundEdge::awaits_again() const {
  MutexLock lock(mutex_);
  return window_.asks_again();
}

absl::Status InboundEdge::Deliver(int64_t stream, Message message) {
  const int64_t size_bytes = message.tensor.size_bytes();
  {
    MutexLock lock(mutex_);
    if (!window_.IsNewest(stream)) {
      return absl::UnavailableError("another stream of the sender has taken its place");
    }
    if (!message.exported.empty() && !imports_) {
      return absl::InvalidArgumentError(
          absl::StrCat("message ", message.sequence, " is exported, which was not agreed upon"));
    }
    // Counted first: a run that has all its tensors may be over, and asked for its traffic, at once.
    bytes_received_.fetch_add(size_bytes, std::memory_order_relaxed);
    messages_received_.fetch_add(1, std::memory_order_relaxed);
    PENSTOCK_RETURN_IF_ERROR(mailbox_.TryPush(std::move(message)));
    window_.Receive();
  }
  return absl::OkStatus();
}

EdgeProgress InboundEdge::progress() const {
  MutexLock lock(mutex_);
  return window_.progress();
}

void InboundEdge::CloseByPeer(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    closed_by_peer_ = true;
  }
  mailbox_.Close(reason);
}

void InboundEdge::Fail(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (failed_.ok()) failed_ = reason;
  }
  mailbox_.Cancel(reason);
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
    if (unreleased_ > 0) {
      ++behind_;
    } else {
      window_.Release(1);
    }
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
    window_.Release(unreleased_ == 0 ? 1 + std::exchange(behind_, 0) : 1);
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
