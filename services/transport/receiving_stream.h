// ReceivingStream: the receiver's end of one edge, a call on this worker's server.
//
// A life: it is posted and waits for any client (kPosted); the client must say hello (kGreeting); it
// waits until the run opens that edge (kParked), which is often later, since workers prepare at
// different speeds; then chunks come in and credits go out (kOpen). A stream that is not open after
// kOpenTimeout is ended.
//
// The first frame back, the welcome, says whether tensors may be exported, after that was tried. A sender's
// exported memory must stay until it is closed here, so the stream of an importer lasts as long as its run;
// also if that fails: an end frame tells the sender so at once, and the stream ends when the executor has
// closed what it imported, at the latest after kCloseTimeout.
//
// Trusts nothing it reads. A message that breaks a rule ends the stream with an error that names job,
// epoch and edge, and fails the run's receive with the same. A tensor that came damaged is asked for again; a frame that
// is so damaged that nobody can say what it was ends the stream alone.
//
// A stream that ends without a word from the sender fails nothing yet: the edge waits StreamLimits::awaited for
// another one, which goes on where this one was. This one then fails the edge, or goes when another has come.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/transport/frame.h"
#include "services/transport/gather.h"
#include "services/transport/inbound_edge.h"
#include "services/transport/message_assembler.h"
#include "services/transport/stream_end.h"
#include "services/transport/suspicion.h"

namespace penstock {

class ReceivingStream;

// A receiving stream's view of the runs. Called on polling threads; must not block.
class StreamDirectory {
 public:
  virtual ~StreamDirectory() = default;
  // The posted stream got its client: post another.
  virtual void OnAccepted(grpc::ServerCompletionQueue& queue) = 0;
  // A client said hello. Calls Attach on the stream now or later. Errors: why it never will.
  virtual absl::Status OnHello(const FrameHeader& header, const Hello& hello,
                               const std::shared_ptr<ReceivingStream>& stream) = 0;
  // The stream ended before it was attached.
  virtual void OnLeft(ReceivingStream* stream) = 0;
  // The run's edge and the stream found each other. `not_exported`: why tensors travel in host memory though
  // both ends have a device that might export.
  virtual void OnOpen(const InboundEdge& edge, const absl::Status& not_exported) = 0;
  // The edge's stream broke, came damaged, or is there again: what happened, for people.
  virtual void OnDisturbed(const InboundEdge& edge, const std::string& what) = 0;
  // Reports that a client's frame was refused, or came damaged.
  virtual void OnRejected(const absl::Status& violation) = 0;
};

class ReceivingStream final : public StreamEnd,
                              public std::enable_shared_from_this<ReceivingStream> {
 public:
  static constexpr absl::Duration kOpenTimeout = absl::Seconds(60);
  static constexpr absl::Duration kCloseTimeout = absl::Seconds(5);

  // The sender keeps a message until it hears that it has come. A credit usually tells it; from this many untold ones
  // on, a frame of its own does.
  static constexpr int64_t kUntoldMax = 2;

  ReceivingStream(grpc::AsyncGenericService& service, StreamDirectory& directory,
                  const StreamLimits& limits, grpc::ServerCompletionQueue& queue, StreamSet& set);

  // Any thread. The run has opened the edge, or (an error) will not.
  void Attach(absl::StatusOr<std::shared_ptr<InboundEdge>> edge) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State { kNew, kPosted, kGreeting, kParked, kOpen, kFinishing };

  void OnWake(bool broken) override;
  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnOpenTimeout(bool ok);
  void OnCloseTimeout(bool ok);
  void OnAwaitedTimeout(bool ok);
  void OnDone(bool ok);
  void OnFinished(bool ok);

  void StartRead();
  absl::Status HandleFrame();
  absl::Status HandleHello(const FrameHeader& header, FrameReader& frame);
  absl::Status HandleLater(const FrameHeader& header, FrameReader& frame);
  absl::Status HandleTensor(const FrameHeader& header, FrameReader& frame);
  absl::Status TakeTensor(const FrameHeader& header, FrameReader& frame);
  absl::Status HandleEnd(const FrameHeader& header, FrameReader& frame);
  absl::Status HandleAsk(const FrameHeader& header);
  // A frame came damaged. Asks for the message that is due again: on this stream if the frame was one of a tensor, with
  // which sending can begin again, else on another. Errors: DataLoss if that was so too often.
  absl::Status HandleDamage(const absl::Status& damage, bool is_tensor);
  // Takes the edge once Attach has left it.
  void Open() ABSL_LOCKS_EXCLUDED(mutex_);
  // The run is over here.
  void Close(const absl::Status& reason, bool broken);
  void WriteNext();
  void WriteProgress();
  void WriteEnd();
  // Ends the stream with `status`, after the frame that is being written.
  void Finish(const absl::Status& status);
  // The same, and the edge waits for another stream.
  void Break(const absl::Status& reason);
  // Ends it because of what the peer did, and fails the edge.
  void Reject(const absl::Status& violation);
  void FinishIfPossible();

  grpc::AsyncGenericService& service_;
  StreamDirectory& directory_;
  const StreamLimits& limits_;
  grpc::ServerCompletionQueue& server_queue_;

  // Used by the polling thread.
  State state_ = State::kNew;
  bool stopping_ = false;  // this process ends
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer incoming_;
  grpc::Alarm open_alarm_, close_alarm_, awaited_alarm_;
  StreamKey key_;       // from the hello on
  int64_t number_ = 0;  // likewise: among the streams of its edge
  ShareBytes offer_;    // of the hello
  std::shared_ptr<InboundEdge> edge_;
  std::optional<MessageAssembler> assembler_;
  LinkMeter::TimePoint arriving_since_ = {};  // the first chunk of the message being assembled
  bool writing_ = false;
  bool welcomed_ = false;
  EdgeProgress told_;        // to the sender
  bool asks_again_ = false;  // and has not said so yet
  bool answers_ = false;     // the sender has asked how far the edge is
  bool ended_by_peer_ = false;
  bool closed_by_peer_ = false;
  // Why the run failed here, while what was imported is still open; and whether the sender knows.
  std::optional<absl::Status> closing_;
  bool told_end_ = false;
  std::optional<absl::Status> finish_;  // to be sent when nothing is being written
  // Why the stream broke, while the edge waits for another.
  std::optional<absl::Status> broken_;
  OperationTag<ReceivingStream, &ReceivingStream::OnAccepted> accepted_tag_{this};
  OperationTag<ReceivingStream, &ReceivingStream::OnRead> read_tag_{this};
  OperationTag<ReceivingStream, &ReceivingStream::OnWritten> written_tag_{this};
  OperationTag<ReceivingStream, &ReceivingStream::OnOpenTimeout> open_timeout_tag_{this};
  OperationTag<ReceivingStream, &ReceivingStream::OnCloseTimeout> close_timeout_tag_{this};
  OperationTag<ReceivingStream, &ReceivingStream::OnAwaitedTimeout> awaited_timeout_tag_{this};
  OperationTag<ReceivingStream, &ReceivingStream::OnDone> done_tag_{this};
  OperationTag<ReceivingStream, &ReceivingStream::OnFinished> finished_tag_{this};

  Mutex mutex_;
  std::optional<absl::StatusOr<std::shared_ptr<InboundEdge>>> attached_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
