// SendingStream: the sender's end of one edge, a client of the destination worker.
//
// The executor puts tensors into a queue as long as the window has room; the polling thread cuts them
// into chunks and writes one after the other. The checksum of a chunk is taken right before gRPC reads
// it, so the bytes come from the cache.
//
// Thread safety: Send by one thread at a time; the rest of the public methods by any.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/transport/frame.h"
#include "services/transport/gather.h"
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
};

class SendingStream final : public StreamEnd {
 public:
  SendingStream(SendingStreamOptions options, grpc::CompletionQueue& queue, StreamSet& set);

  // See Sender::Send.
  absl::Status Send(int64_t sequence, const Tensor& tensor, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether Send would return at once.
  bool Ready() const ABSL_LOCKS_EXCLUDED(mutex_);

  const SendingStreamOptions& options() const { return options_; }
  // Handed over by Send so far.
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  int64_t messages_sent() const { return messages_sent_.load(std::memory_order_relaxed); }

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
  void WriteChunk();
  void WriteEnd(const absl::Status& reason);
  absl::Status HandleFrame();
  // Errors: InvalidArgument if that makes more than the window, unsent messages included.
  absl::Status AddCredit(int32_t credits) ABSL_LOCKS_EXCLUDED(mutex_);
  void DropMessages() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes Send return `reason` from now on. The first reason counts.
  void Fail(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  const SendingStreamOptions options_;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> messages_sent_ = 0;

  // Of the polling thread.
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
  OperationTag<SendingStream, &SendingStream::OnStarted> started_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnRead> read_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnWritten> written_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnFinished> finished_tag_{this};

  mutable Mutex mutex_;
  CondVar changed_;  // credit came, or the end
  int32_t credits_ ABSL_GUARDED_BY(mutex_) = 0;
  // A ring of `capacity` messages. Unused credits, unsent messages and messages at the receiver are
  // never more than that together.
  std::vector<Message> ring_ ABSL_GUARDED_BY(mutex_);
  int head_ ABSL_GUARDED_BY(mutex_) = 0;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);  // asked for
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
