// SendingStream: the sender's end of one edge, a client of the destination worker.
//
// The executor puts tensors into the edge (outbound_edge.h) as long as its window has room; the polling thread cuts them
// into chunks and writes one after the other. The checksum of a chunk is taken right before gRPC reads it, so
// the bytes come from the cache. For an exported tensor one frame carries its descriptor.
//
// A stream that breaks is opened again, over a connection of its own, and goes on from where the receiver is
// (suspicion.h says for how long). What ends the edge at once is a refusal by rules, the end of the peer's run, or a
// receiver that breaks the protocol.
//
// Thread safety: as OutboundEdge; Put and End from any thread.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "compute/device_share.h"
#include "services/transport/frame.h"
#include "services/transport/gather.h"
#include "services/transport/link_meter.h"
#include "services/transport/outbound_edge.h"
#include "services/transport/stream_end.h"
#include "services/transport/suspicion.h"
#include "worker/mailbox.h"

namespace penstock {

struct SendingStreamOptions {
  StreamKey key;
  int capacity = 0;  // messages in flight
  int64_t tensor_bytes_max = 0;
  Hello hello;
  std::string peer;     // for messages: "worker right (127.0.0.1:4000)"
  std::string address;  // of the peer
  StreamLimits limits;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::shared_ptr<Exporter> exporter;  // whose offer the hello makes; null: nothing is exported
  // The peer's first welcome came: tensors may be exported on this path, or travel in host memory. On the
  // polling thread; must not block.
  std::function<void(const std::string& path)> on_open;
  // The stream broke, or is there again: what happened, for people. Works like on_open.
  std::function<void(const std::string& what)> on_disturbed;
  // The peer broke a rule of the protocol, or its frame came damaged. Works like on_open.
  std::function<void(const absl::Status&)> on_rejected;
};

class SendingStream final : public StreamEnd {
 public:
  SendingStream(SendingStreamOptions options, grpc::CompletionQueue& queue, StreamSet& set);

  const SendingStreamOptions& options() const { return options_; }
  OutboundEdge& edge() { return edge_; }
  const OutboundEdge& edge() const { return edge_; }

  // See Sender. REQUIRES: a Reserve of the edge for each.
  absl::Status Put(Message message);
  // Ends the edge. With OK, what was sent still arrives; with a reason, it is dropped, and the peer
  // hears the reason.
  void End(const absl::Status& reason);
  // Returns for how long the receiver has answered nothing, over any number of streams; zero: it answers, or was not asked. Any
  // thread.
  absl::Duration Silent() const;

 private:
  // One attempt at a stream. Another one begins when all operations of the one before have ended.
  struct Call {
    grpc::ClientContext context;
    std::optional<grpc::GenericStub> stub;  // of a connection of its own
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::ByteBuffer incoming;
    grpc::Status status;
    grpc::Alarm timeout;
    bool has_timeout = false;  // its tag is still to come
    grpc::Alarm ask;
    bool may_ask = false;             // its tag is still to come
    bool asks = false;                // to be written when nothing else is
    absl::Duration quiet;             // that the alarm was set for
    EdgeProgress heard_before_quiet;  // when it was set
    // When a part of a tensor last went out, or a frame came.
    LinkMeter::TimePoint last_sign = LinkMeter::Now();
    LinkMeter::TimePoint last_heard = LinkMeter::Now();  // when a frame came
    bool welcomed = false;
    bool writing = false;
    bool can_write = false;
    bool finishing = false;
    bool finished = false;
    absl::Status broken;  // why we gave it up
  };

  void OnWake(bool broken) override;
  void OnStarted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnDialTimeout(bool ok);
  void OnPauseOver(bool ok);
  void OnQuiet(bool ok);

  void Dial();
  void StartRead();
  void Write(const grpc::ByteBuffer& frame);
  // Writes what is next, if nothing is being written.
  void Pump();
  void WriteMessage();
  // Fills in the header what belongs to the tensor being sent.
  FrameHeader TensorHeader(FrameKind kind) const;
  void WriteEnd(const absl::Status& reason);
  // Asks how far the receiver is. What was sent before the question comes before it, so it then has all of that or has lost it.
  void WriteAsk();
  // Asks when nothing is heard of what was sent for this long.
  void AskAfter(absl::Duration quiet);
  absl::Status HandleFrame();
  absl::Status HandleProgress(const FrameHeader& header, FrameReader& frame);
  absl::Status HandleEnd(const FrameHeader& header, FrameReader& frame);
  // The payload of a welcome.
  absl::Status HandlePath(const FrameHeader& header, FrameReader& frame);
  void OnWelcome(int64_t left, bool has_moved);
  // Gives the call up; it ends with `reason`.
  void GiveUp(const absl::Status& reason);
  // All operations of the call have ended: dials again, later, or ends the edge.
  void AfterCall();
  // Why the call ended.
  struct Ending {
    absl::Status reason;
    bool is_final = false;  // another call could change nothing
  };
  Ending EndingOfCall() const;
  // The receiver is to answer from `since` on; or it has.
  void AwaitAnswer(LinkMeter::TimePoint since);
  void StopAwaiting() { silent_since_.store(LinkMeter::TimePoint(), std::memory_order_relaxed); }
  bool awaits_answer() const { return silent_since_.load() != LinkMeter::TimePoint(); }
  // The run failed here, or this process ends: nothing more is to be sent.
  bool HasFailedHere() const;
  // Makes Reserve and Put return `reason`, and gives up everything.
  void EndEdge(const absl::Status& reason);

  const SendingStreamOptions options_;
  OutboundEdge edge_;

  std::atomic<LinkMeter::TimePoint> silent_since_ = LinkMeter::TimePoint();  // the epoch: it is not

  // Used by the polling thread.
  std::unique_ptr<Call> call_;
  grpc::Alarm pause_alarm_;
  bool pausing_ = false;   // its tag is still to come
  bool stopping_ = false;  // this process ends
  bool ended_ = false;
  bool was_welcomed_ = false;
  bool peer_ended_ = false;  // its run failed, as it said
  EdgeProgress heard_;       // from the receiver, last
  absl::Duration patience_;  // for an answer of the next silent stream
  Suspicion suspicion_;
  int dials_ = 0;               // since suspicion_ began
  OutboundEdge::Next current_;  // being sent; without message: none
  int64_t sent_bytes_ = 0;      // of it
  bool writes_tensor_ = false;  // what is being written is part of one
  // When the message was handed over whose last chunk is being written.
  std::optional<LinkMeter::TimePoint> leaving_since_;
  OperationTag<SendingStream, &SendingStream::OnStarted> started_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnRead> read_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnWritten> written_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnFinished> finished_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnDialTimeout> dial_timeout_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnPauseOver> pause_over_tag_{this};
  OperationTag<SendingStream, &SendingStream::OnQuiet> quiet_tag_{this};
};

}  // namespace penstock
