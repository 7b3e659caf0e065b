#include "services/transport/sending_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/deadline.h"
#include "base/status.h"
#include "base/utf8.h"
#include "services/rpc/channel.h"
#include "services/rpc/status.h"

namespace penstock {
namespace {

constexpr size_t kPathBytesMax = 32;

}  // namespace

SendingStream::SendingStream(SendingStreamOptions options, grpc::CompletionQueue& queue,
                             StreamSet& set)
    : StreamEnd(queue, set),
      options_(std::move(options)),
      stub_(MakeTensorChannel(options_.address, options_.credentials)),
      sent_(options_.capacity),
      sent_at_(options_.capacity),
      ring_(options_.capacity) {}

absl::Status SendingStream::Reserve(int64_t sequence, absl::Time deadline) {
  MutexLock lock(mutex_);
  if (credits_ == 0 && failed_.ok()) {
    const auto until = Monotonic(deadline);
    const LinkMeter::TimePoint since = LinkMeter::Now();
    while (credits_ == 0 && failed_.ok()) {
      if (!changed_.WaitUntil(mutex_, until) && credits_ == 0 && failed_.ok()) {
        return absl::DeadlineExceededError(
            absl::StrCat(options_.peer, " gave no credit in time for message ", sequence,
                         " (window of ", options_.capacity, " messages)"));
      }
    }
    meter_.AddWait(since, LinkMeter::Now());
  }
  if (!failed_.ok()) return failed_;
  --credits_;
  ++reserved_;
  return absl::OkStatus();
}

absl::Status SendingStream::Put(Message message) {
  const int64_t size_bytes = message.tensor.size_bytes();
  message.since = LinkMeter::Now();
  {
    MutexLock lock(mutex_);
    PENSTOCK_CHECK(reserved_ > 0);
    --reserved_;
    if (!failed_.ok()) return failed_;
    ring_[(head_ + count_) % ring_.size()] = std::move(message);
    ++count_;
  }
  bytes_sent_.fetch_add(size_bytes, std::memory_order_relaxed);
  messages_sent_.fetch_add(1, std::memory_order_relaxed);
  Wake();
  return absl::OkStatus();
}

std::string SendingStream::path() const {
  MutexLock lock(mutex_);
  return path_;
}

int SendingStream::messages_waiting() const {
  MutexLock lock(mutex_);
  // Before the welcome there are no credits, and no messages either.
  return messages_sent() == 0 ? 0 : std::max(0, options_.capacity - credits_ - reserved_);
}

bool SendingStream::Ready() const {
  MutexLock lock(mutex_);
  return credits_ > 0 || !failed_.ok();
}

void SendingStream::End(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (!end_.has_value() || end_->ok()) end_ = reason;
    if (failed_.ok()) failed_ = reason.ok() ? absl::AbortedError("the edge is closed") : reason;
  }
  changed_.NotifyAll();
  Wake();
}

void SendingStream::Fail(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (failed_.ok()) failed_ = reason;
  }
  changed_.NotifyAll();
}

absl::Status SendingStream::AddCredit(int32_t credits) {
  {
    MutexLock lock(mutex_);
    // A credit comes back for a message that was received, so never for one that is still here.
    const int unsent = reserved_ + count_ + (current_.tensor ? 1 : 0);
    if (credits > options_.capacity - credits_ - unsent) {
      return absl::InvalidArgumentError(absl::StrCat(
          "frame: ", credits, " credits on top of ", credits_, " unused ones and ", unsent,
          " unsent messages exceed the window of ", options_.capacity, " messages"));
    }
    credits_ += credits;
  }
  changed_.NotifyAll();
  return absl::OkStatus();
}

void SendingStream::OnWake(bool broken) {
  if (broken) context_.TryCancel();
  if (stream_ == nullptr) Connect();
  Pump();
}

void SendingStream::Connect() {
  stream_ = stub_.PrepareCall(&context_, kTensorStreamMethod, &queue());
  stream_->StartCall(Begin(started_tag_));
}

void SendingStream::OnStarted(bool ok) {
  if (ok) {
    can_write_ = true;
    FrameHeader header;
    header.kind = FrameKind::kHello;
    header.key = options_.key;
    header.value = options_.capacity;
    header.tensor_bytes = options_.tensor_bytes_max;
    Write(MakeTextFrame(header, EncodeHello(options_.hello)));
  }
  StartRead();  // if it was not started, this ends at once and the status says why
}

void SendingStream::StartRead() { stream_->Read(&incoming_, Begin(read_tag_)); }

void SendingStream::Write(const grpc::ByteBuffer& frame) {
  writing_ = true;
  stream_->Write(frame, Begin(written_tag_));
}

void SendingStream::OnWritten(bool ok) {
  writing_ = false;
  can_write_ = can_write_ && ok;
  if (const auto since = std::exchange(leaving_since_, std::nullopt)) {
    meter_.AddTransfer(*since, LinkMeter::Now());
  }
  Pump();
}

void SendingStream::Pump() {
  if (writing_ || !can_write_ || finishing_) return;
  if (current_.tensor || TakeNext()) WriteMessage();
}

bool SendingStream::TakeNext() {
  std::optional<absl::Status> end;
  {
    MutexLock lock(mutex_);
    if (end_.has_value() && (count_ == 0 || !end_->ok())) {
      end = end_;
    } else if (count_ > 0) {
      current_ = std::exchange(ring_[head_], Message());
      head_ = (head_ + 1) % static_cast<int>(ring_.size());
      --count_;
      sent_bytes_ = 0;
    }
  }
  if (end.has_value()) WriteEnd(*end);
  return static_cast<bool>(current_.tensor);
}

FrameHeader SendingStream::TensorHeader(FrameKind kind) const {
  FrameHeader header;
  header.kind = kind;
  header.key = options_.key;
  header.sequence = current_.sequence;
  header.dtype = current_.tensor.dtype;
  header.shape = current_.tensor.shape;
  header.tensor_bytes = current_.tensor.size_bytes();
  return header;
}

void SendingStream::WriteMessage() {
  grpc::ByteBuffer frame;
  if (current_.exported.empty()) {
    FrameHeader header = TensorHeader(FrameKind::kChunk);
    header.chunk_offset = sent_bytes_;
    header.payload_bytes =
        static_cast<int32_t>(std::min<int64_t>(header.tensor_bytes - sent_bytes_, kChunkBytesMax));
    frame = MakeChunkFrame(header, current_.tensor);
    sent_bytes_ += header.payload_bytes;
  } else {
    frame = MakeTextFrame(TensorHeader(FrameKind::kExported), current_.exported.view());
    sent_bytes_ = current_.tensor.size_bytes();
  }
  if (sent_bytes_ == current_.tensor.size_bytes()) {
    // gRPC holds data in host memory until it is sent; exported tensors are held here.
    const size_t place = (sent_head_ + sent_count_) % sent_.size();
    if (!current_.exported.empty()) sent_[place] = std::move(current_.tensor);
    sent_at_[place] = LinkMeter::Now();
    leaving_since_ = current_.since;
    ++sent_count_;
    current_ = Message();
  }
  Write(frame);
}

void SendingStream::ForgetSent(int32_t credits) {
  for (; credits > 0 && sent_count_ > 0; --credits, --sent_count_) {
    sent_[sent_head_] = Tensor();
    sent_head_ = (sent_head_ + 1) % static_cast<int>(sent_.size());
  }
}

void SendingStream::WriteEnd(const absl::Status& reason) {
  FrameHeader header;
  header.kind = FrameKind::kEnd;
  header.key = options_.key;
  header.value = reason.raw_code();
  const std::string text = CleanUtf8(reason.message(), kTextBytesMax);
  can_write_ = false;
  writing_ = true;
  stream_->WriteLast(MakeTextFrame(header, text), grpc::WriteOptions(), Begin(written_tag_));
}

void SendingStream::OnRead(bool ok) {
  if (ok) violation_ = HandleFrame();
  if (ok && violation_.ok()) return StartRead();
  if (!violation_.ok()) context_.TryCancel();
  finishing_ = true;
  stream_->Finish(&status_, Begin(finished_tag_));
}

absl::Status SendingStream::HandleFrame() {
  FrameReader frame(incoming_);
  PENSTOCK_ASSIGN_OR_RETURN(const FrameHeader header, frame.ReadHeader());
  if (welcomed_ && header.kind == FrameKind::kEnd && header.key == options_.key) {
    return HandleEnd(header, frame);
  }
  const FrameKind expected = welcomed_ ? FrameKind::kCredit : FrameKind::kWelcome;
  if (header.kind != expected || header.key != options_.key) {
    return absl::InvalidArgumentError(absl::StrCat(
        "frame: expected ", welcomed_ ? "credit" : "welcome", " for ", options_.key.ToString(),
        ", got kind ", static_cast<int>(header.kind), " for ", header.key.ToString()));
  }
  if (!welcomed_) return HandleWelcome(header, frame);
  PENSTOCK_RETURN_IF_ERROR(AddCredit(header.value));
  if (const int credited = std::min(header.value, sent_count_); credited > 0) {
    meter_.AddRoundTrip(sent_at_[(sent_head_ + credited - 1) % sent_at_.size()], LinkMeter::Now());
  }
  ForgetSent(header.value);
  return absl::OkStatus();
}

// Exported tensors stay until the stream ends, which is when the receiver has closed them.
absl::Status SendingStream::HandleEnd(const FrameHeader& header, FrameReader& frame) {
  std::string text(header.payload_bytes, '\0');
  PENSTOCK_RETURN_IF_ERROR(frame.ReadPayload(header, text.data()));
  can_write_ = false;
  Fail(absl::AbortedError(absl::StrCat(options_.peer, ": ", CleanUtf8(text, kTextBytesMax))));
  return absl::OkStatus();
}

absl::Status SendingStream::HandleWelcome(const FrameHeader& header, FrameReader& frame) {
  std::string path(header.payload_bytes, '\0');
  PENSTOCK_RETURN_IF_ERROR(frame.ReadPayload(header, path.data()));
  if (!path.empty() && options_.exporter == nullptr) {
    return absl::InvalidArgumentError("frame: welcome to export, where nothing was offered");
  }
  welcomed_ = true;
  if (!path.empty()) {
    MutexLock lock(mutex_);
    path_ = CleanUtf8(path, kPathBytesMax);
    exports_.store(true, std::memory_order_release);
  }
  options_.on_open(this->path());
  return AddCredit(header.value);
}

void SendingStream::DropMessages() {
  current_ = Message();
  ForgetSent(sent_count_);
  MutexLock lock(mutex_);
  for (Message& message : ring_) message = Message();
  count_ = 0;
}

void SendingStream::OnFinished(bool) {
  SetOver();
  DropMessages();
  if (!violation_.ok()) {
    options_.on_rejected(violation_);
    return Fail(Annotate(violation_, options_.peer));
  }
  if (status_.ok()) {
    return Fail(absl::AbortedError(absl::StrCat(options_.peer, " ended the run")));
  }
  if (status_.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return Fail(absl::FailedPreconditionError(
        absl::StrCat(options_.peer, " has no tensor stream: it is not a Penstock worker")));
  }
  Fail(FromGrpcStatus(status_, options_.peer));
}

}  // namespace penstock
