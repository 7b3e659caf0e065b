#include "services/transport/sending_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "base/utf8.h"
#include "services/rpc/channel.h"
#include "services/rpc/status.h"

namespace penstock {
namespace {

constexpr size_t kPathBytesMax = 32;

// Returns whether a receiver ends streams with this code for good. Others are what gRPC itself says when a connection
// breaks or brings what it cannot read, and what the receiver says of that.
bool IsRefusal(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNAVAILABLE:
      return false;
    default:
      return true;
  }
}

}  // namespace

SendingStream::SendingStream(SendingStreamOptions options, grpc::CompletionQueue& queue,
                             StreamSet& set)
    : StreamEnd(queue, set),
      options_(std::move(options)),
      edge_(options_.peer, options_.capacity),
      patience_(options_.limits.silence),
      suspicion_(options_.limits) {}

absl::Status SendingStream::Put(Message message) {
  PENSTOCK_RETURN_IF_ERROR(edge_.Put(std::move(message)));
  Wake();
  return absl::OkStatus();
}

void SendingStream::End(const absl::Status& reason) {
  edge_.End(reason);
  Wake();
}

absl::Duration SendingStream::Silent() const {
  const LinkMeter::TimePoint since = silent_since_.load(std::memory_order_relaxed);
  if (since == LinkMeter::TimePoint()) return absl::ZeroDuration();
  return std::max(absl::ZeroDuration(), absl::FromChrono(LinkMeter::Now() - since));
}

void SendingStream::AwaitAnswer(LinkMeter::TimePoint since) {
  if (!awaits_answer()) silent_since_.store(since, std::memory_order_relaxed);
}

void SendingStream::OnWake(bool broken) {
  if (ended_) return;
  stopping_ = stopping_ || broken;
  if (pausing_) {
    if (HasFailedHere()) pause_alarm_.Cancel();
    return;
  }
  if (call_ == nullptr) Dial();
  if (stopping_) call_->context.TryCancel();
  Pump();
}

bool SendingStream::HasFailedHere() const {
  const std::optional<absl::Status> end = edge_.ended();
  return stopping_ || (end.has_value() && !end->ok());
}

// ------------------------------------------------------------------------------ one call

void SendingStream::Dial() {
  PENSTOCK_FAULT_POINT(kTensorBeforeDial);
  call_ = std::make_unique<Call>();
  call_->stub.emplace(MakeTensorChannel(options_.address, options_.credentials));
  call_->stream = call_->stub->PrepareCall(&call_->context, kTensorStreamMethod, &queue());
  call_->stream->StartCall(Begin(started_tag_));
  if (!was_welcomed_) {
    // A connection takes no time, however long the receiver still prepares its run.
    AwaitAnswer(LinkMeter::Now() + absl::ToChronoNanoseconds(options_.limits.ask_min));
  }
  if (!suspicion_.any()) return;
  ++dials_;
  edge_.meter().AddRedial();
  // A receiver that has welcomed a stream of this edge does so at once; before, it may still prepare its run.
  if (!was_welcomed_) return;
  call_->has_timeout = true;
  SetAlarm(call_->timeout, suspicion_.DialTimeout(LinkMeter::Now()), Begin(dial_timeout_tag_));
}

void SendingStream::OnStarted(bool ok) {
  if (ok) {
    if (!was_welcomed_) {
      suspicion_.OnOpen(LinkMeter::Now());
      StopAwaiting();
    }
    call_->can_write = true;
    PENSTOCK_FAULT_POINT(kTensorBeforeHello);
    FrameHeader header;
    header.kind = FrameKind::kHello;
    header.key = options_.key;
    header.number = edge_.NextStream();
    header.value = options_.capacity;
    header.tensor_bytes = options_.tensor_bytes_max;
    Write(MakeTextFrame(header, EncodeHello(options_.hello)));
  }
  StartRead();  // if it was not started, this ends at once and the status says why
}

void SendingStream::OnDialTimeout(bool expired) {
  call_->has_timeout = false;
  if (expired && !call_->welcomed && !call_->finished) {
    GiveUp(absl::UnavailableError("did not welcome the stream in time"));
  }
  AfterCall();
}

void SendingStream::StartRead() { call_->stream->Read(&call_->incoming, Begin(read_tag_)); }

void SendingStream::Write(const grpc::ByteBuffer& frame) {
  call_->writing = true;
  call_->stream->Write(frame, Begin(written_tag_));
}

void SendingStream::OnWritten(bool ok) {
  call_->writing = false;
  call_->can_write = call_->can_write && ok;
  if (std::exchange(writes_tensor_, false) &&
      ok) {  // a call that was given up brings its writes back
    call_->last_sign = LinkMeter::Now();
    // A question waits behind what is still going out.
    if (awaits_answer()) silent_since_.store(call_->last_sign, std::memory_order_relaxed);
  }
  if (const auto since = std::exchange(leaving_since_, std::nullopt)) {
    edge_.meter().AddTransfer(*since, LinkMeter::Now());
  }
  if (call_->finished) return AfterCall();
  Pump();
}

void SendingStream::Pump() {
  if (call_->writing || !call_->can_write || call_->finishing) return;
  if (!call_->welcomed) {
    // Until the receiver has said how far it is, the end can be told alone, if nothing has to come before it.
    const std::optional<absl::Status> end = edge_.ended();
    if (end.has_value() && (!end->ok() || !was_welcomed_)) WriteEnd(*end);
    return;
  }
  if (current_.message == nullptr) {
    current_ = edge_.FindNext();
    sent_bytes_ = 0;
  }
  if (current_.message != nullptr) return WriteMessage();
  if (current_.end.has_value()) return WriteEnd(*current_.end);
  if (call_->asks) WriteAsk();
}

FrameHeader SendingStream::TensorHeader(FrameKind kind) const {
  const Message& message = *current_.message;
  FrameHeader header;
  header.kind = kind;
  header.key = options_.key;
  header.number = current_.number;
  header.sequence = message.sequence;
  header.dtype = message.tensor.dtype;
  header.shape = message.tensor.shape;
  header.tensor_bytes = message.tensor.size_bytes();
  return header;
}

void SendingStream::WriteMessage() {
  PENSTOCK_FAULT_POINT(kTensorBeforeSend);
  const Message& message = *current_.message;
  const int64_t size_bytes = message.tensor.size_bytes();
  grpc::ByteBuffer frame;
  if (message.exported.empty()) {
    FrameHeader header = TensorHeader(FrameKind::kChunk);
    header.chunk_offset = sent_bytes_;
    header.payload_bytes =
        static_cast<int32_t>(std::min<int64_t>(size_bytes - sent_bytes_, kChunkBytesMax));
    frame = MakeChunkFrame(header, message.tensor);
    sent_bytes_ += header.payload_bytes;
  } else {
    frame = MakeTextFrame(TensorHeader(FrameKind::kExported), message.exported.view());
    sent_bytes_ = size_bytes;
  }
  if (sent_bytes_ == size_bytes) {
    leaving_since_ = message.since;
    edge_.MarkSent();
    current_ = {};
  }
  if (!call_->may_ask) {
    call_->last_sign = LinkMeter::Now();
    AskAfter(options_.limits.ask_min);
  }
  writes_tensor_ = true;
  Write(frame);
}

void SendingStream::AskAfter(absl::Duration quiet) {
  call_->may_ask = true;
  call_->quiet = quiet;
  call_->heard_before_quiet = heard_;
  SetAlarm(call_->ask, quiet, Begin(quiet_tag_));
}

void SendingStream::OnQuiet(bool expired) {
  call_->may_ask = false;
  if (!expired || call_->finished) return AfterCall();
  const bool awaits = call_->writing || edge_.awaits_credit();
  if (!call_->can_write || !awaits) return;  // the next message begins again
  const LinkMeter::TimePoint now = LinkMeter::Now();
  const absl::Duration mute = std::min(Silent(), absl::FromChrono(now - call_->last_sign));
  if (awaits_answer() && mute >= patience_) {
    const absl::Duration silence =
        std::exchange(patience_, std::min(2 * patience_, options_.limits.mute));
    return GiveUp(absl::UnavailableError(
        absl::StrCat("took and answered nothing for ", absl::FormatDuration(silence))));
  }
  const absl::Duration unheard = absl::FromChrono(now - call_->last_heard);
  if (heard_ != call_->heard_before_quiet && unheard < options_.limits.ask_min) {
    return AskAfter(options_.limits.ask_min - unheard);
  }
  call_->asks = true;
  AwaitAnswer(now);
  AskAfter(std::min({2 * call_->quiet, options_.limits.ask_max, patience_ - mute}));
  Pump();
}

void SendingStream::WriteAsk() {
  call_->asks = false;
  FrameHeader header;
  header.kind = FrameKind::kAsk;
  header.key = options_.key;
  header.number = edge_.sent();
  Write(MakeTextFrame(header, ""));
}

void SendingStream::WriteEnd(const absl::Status& reason) {
  FrameHeader header;
  header.kind = FrameKind::kEnd;
  header.key = options_.key;
  header.number = edge_.messages_sent();
  header.value = reason.raw_code();
  const std::string text = CleanUtf8(reason.message(), kTextBytesMax);
  call_->can_write = false;
  call_->writing = true;
  call_->stream->WriteLast(MakeTextFrame(header, text), grpc::WriteOptions(), Begin(written_tag_));
}

void SendingStream::OnRead(bool ok) {
  if (ok) {
    const absl::Status handled = HandleFrame();
    if (handled.ok()) return StartRead();
    if (absl::IsDataLoss(handled)) edge_.meter().AddDamaged();
    options_.on_rejected(handled);
    GiveUp(handled);
  }
  call_->finishing = true;
  call_->stream->Finish(&call_->status, Begin(finished_tag_));
}

absl::Status SendingStream::HandleFrame() {
  call_->last_sign = call_->last_heard = LinkMeter::Now();
  StopAwaiting();
  FrameReader frame(call_->incoming);
  const bool welcomed = call_->welcomed;
  PENSTOCK_ASSIGN_OR_RETURN(const FrameHeader header,
                            was_welcomed_ ? frame.ReadLaterHeader() : frame.ReadHeader());
  const bool is_expected = welcomed ? header.kind == FrameKind::kCredit ||
                                          header.kind == FrameKind::kAgain ||
                                          header.kind == FrameKind::kEnd
                                    : header.kind == FrameKind::kWelcome;
  if (!is_expected || header.key != options_.key) {
    return absl::InvalidArgumentError(absl::StrCat(
        "frame: expected ", welcomed ? "credit" : "welcome", " for ", options_.key.ToString(),
        ", got kind ", static_cast<int>(header.kind), " for ", header.key.ToString()));
  }
  return header.kind == FrameKind::kEnd ? HandleEnd(header, frame) : HandleProgress(header, frame);
}

absl::Status SendingStream::HandleProgress(const FrameHeader& header, FrameReader& frame) {
  const EdgeProgress progress = {.received = header.number,
                                 .released = header.number - header.value};
  absl::StatusOr<int64_t> left;
  if (header.kind == FrameKind::kWelcome) {
    PENSTOCK_RETURN_IF_ERROR(HandlePath(header, frame));  // before there is room for a message
    left = edge_.Open(progress);
  } else if (header.kind == FrameKind::kAgain) {
    left = edge_.SendAgain(progress);
  } else {
    left = edge_.Hear(progress);
  }
  PENSTOCK_RETURN_IF_ERROR(left.status());
  const bool has_moved = progress.received > std::exchange(heard_, progress).received;
  if (header.kind == FrameKind::kWelcome) {
    OnWelcome(*left, has_moved);
  } else if (has_moved && suspicion_.any()) {
    suspicion_.Clear();
  }
  if (header.kind != FrameKind::kCredit) {
    current_ = {};  // sending begins where the receiver is
    Pump();
  }
  return absl::OkStatus();
}

void SendingStream::OnWelcome(int64_t left, bool has_moved) {
  call_->welcomed = true;
  if (call_->has_timeout) call_->timeout.Cancel();
  if (!std::exchange(was_welcomed_, true)) options_.on_open(edge_.path());
  if (!suspicion_.any()) return;
  const LinkMeter::TimePoint now = LinkMeter::Now();
  options_.on_disturbed(absl::StrCat("its stream is there again after ",
                                     absl::FormatDuration(suspicion_.Age(now)), ", dialled ",
                                     dials_, " times; ", left, " messages are to be sent"));
  suspicion_.OnOpen(now);
  if (left == 0 || has_moved) suspicion_.Clear();
}

// Exported tensors stay until the stream ends, which is when the receiver has closed them.
absl::Status SendingStream::HandleEnd(const FrameHeader& header, FrameReader& frame) {
  std::string text(header.payload_bytes, '\0');
  PENSTOCK_RETURN_IF_ERROR(frame.ReadPayload(header, text.data()));
  call_->can_write = false;
  peer_ended_ = true;
  edge_.Fail(absl::AbortedError(absl::StrCat(options_.peer, ": ", CleanUtf8(text, kTextBytesMax))));
  return absl::OkStatus();
}

absl::Status SendingStream::HandlePath(const FrameHeader& header, FrameReader& frame) {
  std::string path(header.payload_bytes, '\0');
  PENSTOCK_RETURN_IF_ERROR(frame.ReadPayload(header, path.data()));
  if (path.empty()) return absl::OkStatus();
  if (options_.exporter == nullptr) {
    return absl::InvalidArgumentError("frame: welcome to export, where nothing was offered");
  }
  // Later streams find what the first one agreed upon.
  if (!was_welcomed_) edge_.Export(CleanUtf8(path, kPathBytesMax));
  return absl::OkStatus();
}

// ---------------------------------------------------------------------- between two calls

void SendingStream::GiveUp(const absl::Status& reason) {
  if (call_->broken.ok()) call_->broken = reason;
  call_->context.TryCancel();
}

void SendingStream::OnFinished(bool) {
  call_->finished = true;
  if (call_->has_timeout) call_->timeout.Cancel();
  if (call_->may_ask) call_->ask.Cancel();
  AfterCall();
}

void SendingStream::AfterCall() {
  if (!call_->finished || call_->writing || call_->has_timeout || call_->may_ask) return;
  const Ending ending = EndingOfCall();
  const bool was_open = call_->welcomed;
  call_.reset();
  current_ = {};
  if (ending.is_final || peer_ended_ || HasFailedHere()) return EndEdge(ending.reason);
  const LinkMeter::TimePoint now = LinkMeter::Now();
  if (!suspicion_.any()) dials_ = 0;
  const bool is_told = was_open || !suspicion_.any();
  const std::optional<absl::Duration> pause = suspicion_.OnBroken(now);
  if (!pause.has_value()) {
    return EndEdge(absl::UnavailableError(absl::StrCat(
        ending.reason.message(), "; no stream to it has held for ",
        absl::FormatDuration(suspicion_.Age(now)), ", dialled ", dials_, " times since")));
  }
  if (is_told) {
    options_.on_disturbed(absl::StrCat(
        "its stream ", was_open ? "broke" : "did not open", ", and is dialled again for ",
        absl::FormatDuration(options_.limits.suspicion), ": ", ending.reason.message()));
  }
  pausing_ = true;
  SetAlarm(pause_alarm_, *pause, Begin(pause_over_tag_));
}

void SendingStream::OnPauseOver(bool) {
  pausing_ = false;
  if (!HasFailedHere()) return Dial();
  EndEdge(absl::UnavailableError(
      absl::StrCat(options_.peer, ": the stream to it broke, and the run has ended here since")));
}

SendingStream::Ending SendingStream::EndingOfCall() const {
  if (!call_->broken.ok()) {
    const bool may_heal = absl::IsDataLoss(call_->broken) || absl::IsUnavailable(call_->broken);
    return {Annotate(call_->broken, options_.peer), !may_heal};
  }
  if (call_->status.ok()) {
    return {absl::AbortedError(absl::StrCat(options_.peer, " ended the run")), true};
  }
  const grpc::StatusCode code = call_->status.error_code();
  if (code == grpc::StatusCode::UNIMPLEMENTED && !was_welcomed_) {
    return {absl::FailedPreconditionError(
                absl::StrCat(options_.peer, " has no tensor stream: it is not a Penstock worker")),
            true};
  }
  return {FromGrpcStatus(call_->status, options_.peer), IsRefusal(code)};
}

void SendingStream::EndEdge(const absl::Status& reason) {
  edge_.Fail(reason);
  edge_.Drop();
  StopAwaiting();
  ended_ = true;
  SetOver();
}

}  // namespace penstock
