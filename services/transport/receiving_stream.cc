#include "services/transport/receiving_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "services/rpc/access.h"
#include "services/rpc/status.h"
#include "services/rpc/transport_security.h"

namespace penstock {

ReceivingStream::ReceivingStream(grpc::AsyncGenericService& service, StreamDirectory& directory,
                                 grpc::ServerCompletionQueue& queue, StreamSet& set)
    : StreamEnd(queue, set), service_(service), directory_(directory), server_queue_(queue) {}

void ReceivingStream::Attach(absl::StatusOr<std::shared_ptr<InboundEdge>> edge) {
  {
    MutexLock lock(mutex_);
    attached_ = std::move(edge);
  }
  Wake();
}

void ReceivingStream::OnWake(bool broken) {
  if (state_ == State::kNew) {
    state_ = State::kPosted;
    context_.AsyncNotifyWhenDone(&done_tag_);  // begins when the call does
    service_.RequestCall(&context_, &stream_, &server_queue_, &server_queue_, Begin(accepted_tag_));
    return;
  }
  if (state_ == State::kPosted) return;
  if (broken) context_.TryCancel();
  if (state_ == State::kParked) Open();
  if (state_ != State::kOpen) return;
  if (const auto ended = edge_->ended(); ended.has_value()) return Close(*ended, broken);
  if (closed_by_peer_ && (broken || !edge_->imports())) return Finish(absl::OkStatus());
  WriteNext();
}

void ReceivingStream::Close(const absl::Status& reason, bool broken) {
  const absl::Status status =
      reason.ok() ? reason : absl::AbortedError(absl::StrCat("ended the run: ", reason.message()));
  if (broken || !edge_->imports()) return Finish(status);
  if (!closing_.has_value()) {
    closing_ = status;
    close_alarm_.Set(&queue(), absl::ToChronoTime(absl::Now() + kCloseTimeout),
                     Begin(close_timeout_tag_));
  }
  WriteNext();
}

void ReceivingStream::OnCloseTimeout(bool expired) {
  if (!expired || state_ != State::kOpen) return;
  Finish(*closing_);
}

void ReceivingStream::OnAccepted(bool ok) {
  if (!ok) return SetOver();  // the server shuts down
  Begin(done_tag_);
  directory_.OnAccepted(server_queue_);
  state_ = State::kGreeting;
  if (context_.method() != kTensorStreamMethod) {
    return Finish(absl::UnimplementedError(
        absl::StrCat("this Penstock worker has no method ", context_.method())));
  }
  open_alarm_.Set(&queue(), absl::ToChronoTime(absl::Now() + kOpenTimeout),
                  Begin(open_timeout_tag_));
  StartRead();
}

void ReceivingStream::OnOpenTimeout(bool expired) {
  if (!expired || state_ == State::kOpen) return;
  if (state_ == State::kGreeting) {
    return Finish(absl::DeadlineExceededError(
        absl::StrCat("no hello within ", absl::FormatDuration(kOpenTimeout))));
  }
  Finish(absl::NotFoundError(absl::StrCat(key_.ToString(), ": no run opened this edge within ",
                                          absl::FormatDuration(kOpenTimeout))));
}

void ReceivingStream::StartRead() { stream_.Read(&incoming_, Begin(read_tag_)); }

void ReceivingStream::OnRead(bool ok) {
  if (state_ == State::kFinishing) return;
  // Frames that still come when the run is over here are dropped.
  const bool over = edge_ != nullptr && edge_->ended().has_value();
  if (!ok) {
    closed_by_peer_ = ended_by_peer_;
    // The end comes when what was imported is closed.
    if ((closed_by_peer_ || over) && edge_ != nullptr && edge_->imports()) return;
    if (ended_by_peer_) return Finish(absl::OkStatus());
    return Reject(absl::UnavailableError(
        "closed the tensor stream in mid-run; its process or the connection is gone"));
  }
  const absl::Status handled = over ? absl::OkStatus() : HandleFrame();
  incoming_.Clear();  // gives the network's memory back before it reads on
  if (!handled.ok()) {
    directory_.OnRejected(handled);
    return Reject(handled);
  }
  StartRead();
}

absl::Status ReceivingStream::HandleFrame() {
  FrameReader frame(incoming_);
  PENSTOCK_ASSIGN_OR_RETURN(const FrameHeader header, frame.ReadHeader());
  if (state_ == State::kGreeting) return HandleHello(header, frame);
  if (header.kind == FrameKind::kEnd) return HandleEnd(header, frame);
  if (header.kind == FrameKind::kChunk && state_ == State::kOpen && !ended_by_peer_) {
    return HandleChunk(header, frame);
  }
  if (header.kind == FrameKind::kExported && state_ == State::kOpen && !ended_by_peer_) {
    return HandleExported(header, frame);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("frame: kind ", static_cast<int>(header.kind), " is not expected ",
                   state_ == State::kOpen ? "after the welcome" : "before the welcome"));
}

absl::Status ReceivingStream::HandleHello(const FrameHeader& header, FrameReader& frame) {
  if (header.kind != FrameKind::kHello) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: expected hello, got kind ", static_cast<int>(header.kind)));
  }
  std::string payload(header.payload_bytes, '\0');
  PENSTOCK_RETURN_IF_ERROR(frame.ReadPayload(header, payload.data()));
  PENSTOCK_ASSIGN_OR_RETURN(const Hello hello, DecodeHello(payload));
  key_ = header.key;
  offer_ = hello.offer;
  state_ = State::kParked;
  if (const std::optional<Identity> caller = CallerOf(context_); caller.has_value()) {
    PENSTOCK_RETURN_IF_ERROR(CheckSpeaksFor(*caller, hello.source_name));
  }
  PENSTOCK_RETURN_IF_ERROR(directory_.OnHello(header, hello, shared_from_this()));
  Open();
  return absl::OkStatus();
}

void ReceivingStream::Open() {
  std::optional<absl::StatusOr<std::shared_ptr<InboundEdge>>> attached;
  {
    MutexLock lock(mutex_);
    attached = std::exchange(attached_, std::nullopt);
  }
  if (!attached.has_value()) return;
  if (!attached->ok()) return Finish(attached->status());
  edge_ = **std::move(attached);
  state_ = State::kOpen;
  open_alarm_.Cancel();
  assembler_.emplace(
      key_, edge_->options().tensor_bytes_max,
      [edge = edge_](DType dtype, const Shape& shape) { return edge->Acquire(dtype, shape); });
  directory_.OnOpen(*edge_, edge_->TryOffer(offer_));
  WriteNext();
}

absl::Status ReceivingStream::HandleChunk(const FrameHeader& header, FrameReader& frame) {
  if (header.chunk_offset == 0) arriving_since_ = LinkMeter::Now();
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<Message> message, assembler_->Take(header, frame));
  if (!message.has_value()) return absl::OkStatus();
  edge_->meter().AddTransfer(arriving_since_, LinkMeter::Now());
  return edge_->Deliver(*std::move(message));
}

absl::Status ReceivingStream::HandleExported(const FrameHeader& header, FrameReader& frame) {
  PENSTOCK_ASSIGN_OR_RETURN(Message message, assembler_->TakeExported(header, frame));
  return edge_->Deliver(std::move(message));
}

absl::Status ReceivingStream::HandleEnd(const FrameHeader& header, FrameReader& frame) {
  std::string text(header.payload_bytes, '\0');
  PENSTOCK_RETURN_IF_ERROR(frame.ReadPayload(header, text.data()));
  ended_by_peer_ = true;
  if (edge_ == nullptr) return absl::OkStatus();
  const std::string& peer = edge_->options().peer;
  if (header.value == 0) {
    edge_->CloseByPeer(absl::AbortedError(absl::StrCat(peer, " ended the run")));
  } else {
    edge_->Fail(absl::AbortedError(absl::StrCat(peer, " ended the run: ", text)));
  }
  return absl::OkStatus();
}

void ReceivingStream::WriteNext() {
  if (writing_ || finish_.has_value()) return;
  if (closing_.has_value() && welcomed_) {
    WriteEnd();
  } else {
    WriteCredits();
  }
}

void ReceivingStream::WriteEnd() {
  if (std::exchange(told_end_, true)) return;
  FrameHeader header;
  header.kind = FrameKind::kEnd;
  header.key = key_;
  header.value = closing_->raw_code();
  writing_ = true;
  stream_.Write(MakeTextFrame(header, CleanUtf8(closing_->message(), kTextBytesMax)),
                Begin(written_tag_));
}

void ReceivingStream::WriteCredits() {
  const int32_t credits = edge_->TakeCredits();
  if (credits == 0) return;
  FrameHeader header;
  header.kind = welcomed_ ? FrameKind::kCredit : FrameKind::kWelcome;
  header.key = key_;
  header.value = credits;
  const bool tells_path = !welcomed_ && edge_->imports();
  welcomed_ = true;
  writing_ = true;
  stream_.Write(MakeTextFrame(header, tells_path ? edge_->path() : ""), Begin(written_tag_));
}

void ReceivingStream::OnWritten(bool) {
  writing_ = false;
  if (state_ == State::kOpen) WriteNext();
  FinishIfPossible();
}

void ReceivingStream::Reject(const absl::Status& violation) {
  const absl::Status named =
      state_ == State::kGreeting ? violation : Annotate(violation, key_.ToString());
  if (edge_ != nullptr) edge_->Fail(Annotate(violation, edge_->options().peer));
  Finish(named);
}

void ReceivingStream::Finish(const absl::Status& status) {
  if (state_ == State::kFinishing) return;
  if (state_ == State::kParked) directory_.OnLeft(this);
  state_ = State::kFinishing;
  open_alarm_.Cancel();
  close_alarm_.Cancel();
  finish_ = status;
  FinishIfPossible();
}

void ReceivingStream::FinishIfPossible() {
  if (writing_ || !finish_.has_value()) return;
  const absl::Status status = *std::exchange(finish_, std::nullopt);
  stream_.Finish(ToGrpcStatus(status), Begin(finished_tag_));
}

void ReceivingStream::OnDone(bool) {}

void ReceivingStream::OnFinished(bool) {
  SetOver();
  edge_.reset();
  assembler_.reset();
}

}  // namespace penstock
