#include "services/transport/receiving_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "base/utf8.h"
#include "services/rpc/access.h"
#include "services/rpc/status.h"
#include "services/rpc/transport_security.h"

namespace penstock {
namespace {

absl::Status Replaced() {
  return absl::UnavailableError("another stream of the sender has taken its place");
}

}  // namespace

ReceivingStream::ReceivingStream(grpc::AsyncGenericService& service, StreamDirectory& directory,
                                 const StreamLimits& limits, grpc::ServerCompletionQueue& queue,
                                 StreamSet& set)
    : StreamEnd(queue, set),
      service_(service),
      directory_(directory),
      limits_(limits),
      server_queue_(queue) {}

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
  stopping_ = stopping_ || broken;
  if (broken) context_.TryCancel();
  if (state_ == State::kParked) Open();
  if (state_ == State::kFinishing && broken_.has_value()) {
    if (stopping_) edge_->Fail(Annotate(*broken_, edge_->options().peer));
    if (!edge_->AwaitsAfter(number_)) awaited_alarm_.Cancel();
  }
  if (state_ != State::kOpen) return;
  if (!edge_->IsNewest(number_)) return Finish(Replaced());
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

// The sender did not come back, another stream took this one's place, or the run is over.
void ReceivingStream::OnAwaitedTimeout(bool expired) {
  if (expired && edge_->AwaitsAfter(number_)) {
    edge_->Fail(absl::UnavailableError(absl::StrCat(
        edge_->options().peer, " has had no tensor stream here for ",
        absl::FormatDuration(limits_.awaited), ", since its last one ", broken_->message())));
  }
  broken_.reset();
  edge_.reset();
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
  if (state_ == State::kParked) Open();  // the edge may have come just now
  if (state_ == State::kFinishing) return;
  if (edge_ != nullptr && !edge_->IsNewest(number_)) return Finish(Replaced());
  // Frames that still come when the run is over here are dropped.
  const bool over = edge_ != nullptr && edge_->ended().has_value();
  if (!ok) {
    closed_by_peer_ = ended_by_peer_;
    // The end comes when what was imported is closed.
    if ((closed_by_peer_ || over) && edge_ != nullptr && edge_->imports()) return;
    if (ended_by_peer_) return Finish(absl::OkStatus());
    return Break(
        absl::UnavailableError("was closed in mid-run; its process or the connection is gone"));
  }
  const absl::Status handled = over ? absl::OkStatus() : HandleFrame();
  incoming_.Clear();  // gives the network's memory back before it reads on
  if (!handled.ok()) {
    directory_.OnRejected(handled);
    return Reject(handled);
  }
  if (state_ != State::kFinishing) StartRead();
}

absl::Status ReceivingStream::HandleFrame() {
  FrameReader frame(incoming_);
  if (state_ == State::kGreeting) {
    PENSTOCK_ASSIGN_OR_RETURN(const FrameHeader header, frame.ReadHeader());
    return HandleHello(header, frame);
  }
  const absl::StatusOr<FrameHeader> header = frame.ReadLaterHeader();
  const absl::Status handled = header.ok() ? HandleLater(*header, frame) : header.status();
  if (!absl::IsDataLoss(handled) || state_ != State::kOpen) return handled;
  return HandleDamage(handled, header.ok() && HasTensor(header->kind));
}

absl::Status ReceivingStream::HandleLater(const FrameHeader& header, FrameReader& frame) {
  if (header.kind == FrameKind::kEnd) return HandleEnd(header, frame);
  if (header.kind == FrameKind::kAsk && state_ == State::kOpen) return HandleAsk(header);
  if (HasTensor(header.kind) && state_ == State::kOpen && !ended_by_peer_) {
    return HandleTensor(header, frame);
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
  number_ = header.number;
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
  if (!(**attached)->IsNewest(number_)) return Finish(Replaced());
  edge_ = **std::move(attached);
  state_ = State::kOpen;
  open_alarm_.Cancel();
  assembler_.emplace(
      key_, edge_->options().tensor_bytes_max,
      [edge = edge_](DType dtype, const Shape& shape) { return edge->Acquire(dtype, shape); });
  if (const std::optional<absl::Duration> absent = edge_->MarkOpen()) {
    directory_.OnDisturbed(
        *edge_, absl::StrCat("its stream is there again after ", absl::FormatDuration(*absent),
                             "; message number ", edge_->progress().received, " is due"));
  } else {
    directory_.OnOpen(*edge_, edge_->TryOffer(offer_));
  }
  WriteNext();
}

absl::Status ReceivingStream::HandleTensor(const FrameHeader& header, FrameReader& frame) {
  PENSTOCK_RETURN_IF_ERROR(assembler_->CheckKey(header));
  switch (edge_->Judge(number_, header)) {
    case ReceiveWindow::Verdict::kDue:
      return TakeTensor(header, frame);
    case ReceiveWindow::Verdict::kDuplicate:
      if (header.chunk_offset == 0) edge_->meter().AddDuplicate();
      return absl::OkStatus();
    case ReceiveWindow::Verdict::kOvertaken:
      return absl::OkStatus();
    case ReceiveWindow::Verdict::kReplaced:
      Finish(Replaced());
      return absl::OkStatus();
    case ReceiveWindow::Verdict::kGap:
      break;
  }
  return absl::DataLossError(absl::StrCat("message ", header.sequence, " came as number ",
                                          header.number, " of the edge, expected number ",
                                          edge_->progress().received));
}

absl::Status ReceivingStream::TakeTensor(const FrameHeader& header, FrameReader& frame) {
  Message message;
  if (header.kind == FrameKind::kExported) {
    PENSTOCK_ASSIGN_OR_RETURN(message, assembler_->TakeExported(header, frame));
  } else {
    if (header.chunk_offset == 0) {
      arriving_since_ = LinkMeter::Now();
      assembler_->Reset();  // a sender that was asked twice begins twice
    }
    PENSTOCK_ASSIGN_OR_RETURN(std::optional<Message> whole, assembler_->Take(header, frame));
    if (!whole.has_value()) return absl::OkStatus();
    edge_->meter().AddTransfer(arriving_since_, LinkMeter::Now());
    message = *std::move(whole);
  }
  PENSTOCK_FAULT_POINT(kTensorAfterReceive);
  PENSTOCK_RETURN_IF_ERROR(edge_->Deliver(number_, std::move(message)));
  WriteNext();
  return absl::OkStatus();
}

absl::Status ReceivingStream::HandleAsk(const FrameHeader& header) {
  PENSTOCK_RETURN_IF_ERROR(assembler_->CheckKey(header));
  const int64_t received = edge_->progress().received;
  answers_ = true;
  if (header.number > received) {
    // Where they were asked for already, the sender has not heard that, and it is said once more.
    if (!edge_->awaits_again()) {
      const absl::Status lost = absl::DataLossError(
          absl::StrCat("message number ", received, " of the edge was lost, and ",
                       header.number - received - 1, " behind it"));
      PENSTOCK_RETURN_IF_ERROR(edge_->AskAgain(lost));
      directory_.OnDisturbed(*edge_, absl::StrCat(lost.message(), "; it is asked for again"));
    }
    assembler_->Reset();
    asks_again_ = true;
  }
  WriteNext();
  return absl::OkStatus();
}

absl::Status ReceivingStream::HandleDamage(const absl::Status& damage, bool is_tensor) {
  edge_->meter().AddDamaged();
  PENSTOCK_RETURN_IF_ERROR(edge_->AskAgain(damage));
  directory_.OnRejected(damage);
  if (!is_tensor) {
    Break(absl::UnavailableError(absl::StrCat("brought what cannot be read: ", damage.message())));
    return absl::OkStatus();
  }
  directory_.OnDisturbed(*edge_, absl::StrCat(damage.message(), "; it is asked for again"));
  assembler_->Reset();
  asks_again_ = true;
  WriteNext();
  return absl::OkStatus();
}

absl::Status ReceivingStream::HandleEnd(const FrameHeader& header, FrameReader& frame) {
  std::string text(header.payload_bytes, '\0');
  PENSTOCK_RETURN_IF_ERROR(frame.ReadPayload(header, text.data()));
  if (edge_ != nullptr && header.value == 0) {
    const int64_t received = edge_->progress().received;
    if (received != header.number) {
      // What is missing was asked for again when the sender had ended the stream already.
      Break(absl::UnavailableError(absl::StrCat("ended after ", header.number,
                                                " messages, of which ", received, " have come")));
      return absl::OkStatus();
    }
  }
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
    WriteProgress();
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

void ReceivingStream::WriteProgress() {
  const EdgeProgress progress = edge_->progress();
  if (welcomed_ && !asks_again_ && !answers_ && progress.released == told_.released &&
      progress.received < told_.received + kUntoldMax) {
    return;
  }
  PENSTOCK_FAULT_POINT(kTensorBeforeCredit);
  FrameHeader header;
  header.kind = !welcomed_    ? FrameKind::kWelcome
                : asks_again_ ? FrameKind::kAgain
                              : FrameKind::kCredit;
  header.key = key_;
  header.number = progress.received;
  header.value = static_cast<int32_t>(progress.received - progress.released);
  const bool tells_path = !welcomed_ && edge_->imports();
  told_ = progress;
  welcomed_ = true;
  asks_again_ = false;
  answers_ = false;
  writing_ = true;
  stream_.Write(MakeTextFrame(header, tells_path ? edge_->path() : ""), Begin(written_tag_));
}

void ReceivingStream::OnWritten(bool) {
  writing_ = false;
  if (state_ == State::kOpen) WriteNext();
  FinishIfPossible();
}

void ReceivingStream::Reject(const absl::Status& violation) {
  // What was damaged before the stream was open says nothing about the run: the sender may try again.
  const absl::Status reason = edge_ == nullptr && absl::IsDataLoss(violation)
                                  ? absl::UnavailableError(violation.message())
                                  : violation;
  const absl::Status named =
      state_ == State::kGreeting ? reason : Annotate(reason, key_.ToString());
  if (edge_ != nullptr && edge_->IsNewest(number_)) {
    edge_->Fail(Annotate(reason, edge_->options().peer));
  }
  Finish(named);
}

void ReceivingStream::Break(const absl::Status& reason) {
  if (edge_ != nullptr && stopping_) {
    edge_->Fail(Annotate(reason, edge_->options().peer));
  } else if (edge_ != nullptr && edge_->MarkBroken(number_)) {
    broken_ = reason;
    SetAlarm(awaited_alarm_, limits_.awaited, Begin(awaited_timeout_tag_));
    directory_.OnDisturbed(
        *edge_, absl::StrCat("its stream ", reason.message(), "; another one is awaited for ",
                             absl::FormatDuration(limits_.awaited)));
  }
  Finish(state_ == State::kGreeting ? reason : Annotate(reason, key_.ToString()));
}

void ReceivingStream::Finish(const absl::Status& status) {
  if (state_ == State::kFinishing) return;
  if (state_ == State::kParked) directory_.OnLeft(this);
  state_ = State::kFinishing;
  assembler_.reset();  // the memory of what has come in part
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
  if (!broken_.has_value()) edge_.reset();
}

}  // namespace penstock
