// SendingStream: the sender's end of one edge, a client of the destination worker.
//
// The executor puts tensors into a queue as long as the window has room; the polling thread cuts them into
// chunks and writes one after the other. The checksum of a chunk is taken right before gRPC reads it, so
// the bytes come from the cache. For an exported tensor one frame carries its descriptor; the tensor is
// kept until the receiver's credit says that it has its own.
//
// Thread safety: Reserve by one thread at a time; the rest of the public methods by any.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "compute/device_share.h"
#include "services/transport/frame.h"
#include "services/transport/gather.h"
#include "services/transport/link_meter.h"
#include "services/transport/stream_end.h"
#include "worker/mailbox.h"

namespace penstock {

struct SendingStreamOptions {
  StreamKey key;
  int capacity = 0;  // messages in flight
  int64_t tensor_bytes_max = 0;
  Hello hello;
  std::string peer;     // for messages: "worker right (127.0.0.1:4000)"
  std::string address;  // of the peer
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::shared_ptr<Exporter> exporter;  // whose offer the hello makes; null: nothing is exported
  // The peer's welcome came: tensors may be exported on this path, or travel in host memory. On the
  // polling thread; must not block.
  std::function<void(const std::string& path)> on_open;
  // The peer broke a rule of the protocol. Works like on_open.
  std::function<void(const absl::Status&)> on_rejected;
};

class SendingStream final : public StreamEnd {
 public:
  SendingStream(SendingStreamOptions options, grpc::CompletionQueue& queue, StreamSet& set);

  // See Sender.
  absl::Status Reserve(int64_t sequence, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Put(Message message) ABSL_LOCKS_EXCLUDED(mutex_);
  std::string path() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool exports() const { return exports_.load(std::memory_order_acquire); }
  // Returns whether Reserve would return at once.
  bool Ready() const ABSL_LOCKS_EXCLUDED(mutex_);

  const SendingStreamOptions& options() const { return options_; }
  // Handed over by Put so far.
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  int64_t messages_sent() const { return messages_sent_.load(std::memory_order_relaxed); }
  // Handed over, and without credit from the receiver yet.
  int messages_waiting() const ABSL_LOCKS_EXCLUDED(mutex_);
  const LinkMeter& meter() const { return meter_; }

  // Ends the stream. With OK, what was sent still arrives; with a reason, it is dropped, and the peer
  // hears the reason.
  void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void OnWake(bool broken) override;
  void OnStarted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);

  void Connect();
  void StartRead();
  void Write(const grpc::ByteBuffer& frame);
  // Writes what is next, if nothing is being written.
  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the next message, or the wish to end, off the queue.
  bool TakeNext() ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteMessage();
  // Fills in the header what belongs to the tensor being sent.
  FrameHeader TensorHeader(FrameKind kind) const;
  void WriteEnd(const absl::Status& reason);
  absl::Status HandleFrame();
  absl::Status HandleEnd(const FrameHeader& header, FrameReader& frame);
  absl::Status HandleWelcome(const FrameHeader& header, FrameReader& frame)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives up what the receiver has of its own: of the oldest `credits` messages.
  void ForgetSent(int32_t credits);
  // Errors: InvalidArgument if that makes more than the window, unsent messages included.
  absl::Status AddCredit(int32_t credits) ABSL_LOCKS_EXCLUDED(mutex_);
  void DropMessages() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes Reserve and Put return `reason` from now on. The first reason counts.
  void Fail(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  const SendingStreamOptions options_;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> messages_sent_ = 0;
  std::atomic<bool> exports_ = false;
  LinkMeter meter_;

  // Used by the polling thread.
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer incoming_;
  grpc::Status status_;
  bool welcomed_ = false;
  bool writing_ = false;
  bool can_write_ = false;
  bool finishing_ = false;
  absl::Status violation_;  // of the protocol, by the peer
  Message current_;         // being sent; without tensor: none
  int64_t sent_bytes_ = 0;  // of it
  // A ring of `capacity`: messages sent without credit since; of exported ones, the tensor.
  std::vector<Tensor> sent_;
  std::vector<LinkMeter::TimePoint> sent_at_;  // the last chunk, in the same places
  // When the message was handed over whose last chunk is being written.
  std::optional<LinkMeter::TimePoint> leaving_since_;
  int sent_head_ = 0;
  int sent_count_ = 0;
  OperationTag<SendingStream, &SendingStream::OnStarted> started_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnRead> read_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnWritten> written_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnFinished> finished_tag_{this};

  mutable Mutex mutex_;
  CondVar changed_;  // credit came, or the end
  std::string path_ ABSL_GUARDED_BY(mutex_) = kHostPath;
  int32_t credits_ ABSL_GUARDED_BY(mutex_) = 0;
  int reserved_ ABSL_GUARDED_BY(mutex_) = 0;  // credits taken for messages to come
  // A ring of `capacity` messages. Unused and reserved credits, unsent messages and messages at the
  // receiver are never more than that together.
  std::vector<Message> ring_ ABSL_GUARDED_BY(mutex_);
  int head_ ABSL_GUARDED_BY(mutex_) = 0;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // asked for
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
