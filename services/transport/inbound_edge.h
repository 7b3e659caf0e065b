// InboundEdge: what the receiving executor and the network share of one edge.
//
// The network (a ReceivingStream) puts complete messages in; the executor takes them out and owes one
// credit for each. For an exported tensor (compute/device_share.h) only a descriptor comes in; the
// executor fetches the tensor, and owes the credit when its device has it. Credits are owed in the
// order of the messages, for the sender takes its memory back in that order.
//
// An edge outlives its streams: one that breaks is followed by another, which goes on where it was (edge_window.h).
// Only the newest delivers.
//
// Thread safety: all methods may be called from any thread, except where stated.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "compute/buffer_pool.h"
#include "compute/device_share.h"
#include "services/transport/edge_window.h"
#include "services/transport/frame.h"
#include "services/transport/link_meter.h"
#include "worker/mailbox.h"
#include "worker/transport.h"

namespace penstock {

class StreamEnd;

struct InboundEdgeOptions {
  StreamKey key;
  int capacity = 0;
  int64_t tensor_bytes_max = 0;
  Hello hello;       // what the right sender says
  std::string peer;  // for messages: "worker left (127.0.0.1:4000)"
};

class InboundEdge {
 public:
  // `share`: of the device that exported tensors are fetched to; null: none are taken.
  // REQUIRES: it lives until StopImporting.
  InboundEdge(InboundEdgeOptions options, BufferPool& pool, DeviceShare* share)
      : options_(std::move(options)), mailbox_(options_.capacity), pool_(&pool), share_(share) {}

  const InboundEdgeOptions& options() const { return options_; }
  Mailbox& mailbox() { return mailbox_; }

  // ---- The network's side.

  // The stream that will deliver, `number` among those of this edge. One before it is woken, and ends.
  // Errors: AlreadyExists if there is or was one of that number or a later one; Aborted if the edge failed.
  absl::Status Attach(std::shared_ptr<StreamEnd> stream, int64_t number)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsNewest(int64_t stream) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The newest stream is open. Returns how long there was none before; nothing for the first.
  std::optional<absl::Duration> MarkOpen() ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream broke. Returns whether the edge waits for another now.
  bool MarkBroken(int64_t stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether it waits for one to follow `stream`.
  bool AwaitsAfter(int64_t stream) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Tries the sender's offer to export. Errors: why it cannot be used, where there was one.
  absl::Status TryOffer(const ShareBytes& offer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether tensors may be exported: from TryOffer to StopImporting.
  bool imports() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns Importer::path, or kHostPath; stays.
  std::string path() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Memory for a message. Errors: Aborted once the run is over, ResourceExhausted.
  absl::StatusOr<Tensor> Acquire(DType dtype, const Shape& shape) ABSL_LOCKS_EXCLUDED(mutex_);
  // What the frame that came on `stream` is; it has a tensor.
  ReceiveWindow::Verdict Judge(int64_t stream, const FrameHeader& header)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The message that is due came damaged or was lost on the way, and is asked for again.
  // Errors: DataLoss with `damage`, if that was so too often.
  absl::Status AskAgain(const absl::Status& damage) ABSL_LOCKS_EXCLUDED(mutex_);
  // It was asked for again, and has not begun to come.
  bool awaits_again() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The message that is due. Errors: ResourceExhausted if the sender exceeded its window; InvalidArgument if
  // it exports though no offer was accepted; Unavailable if another stream has taken the place of `stream`.
  absl::Status Deliver(int64_t stream, Message message) ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }
  int64_t messages_received() const { return messages_received_.load(std::memory_order_relaxed); }
  LinkMeter& meter() { return meter_; }
  EdgeProgress progress() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The sender ended the run in good order: what came can still be received.
  void CloseByPeer(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all waits. No stream is taken any more.
  void Fail(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- The executor's side.

  absl::StatusOr<Message> Pop(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Fetches an exported message that was popped; Release must follow. The executor's thread.
  absl::StatusOr<Importer::Fetched> Fetch(const Arrival& message) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first exported message that was popped and not released has been fetched.
  void Release() ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes what the sender exported. The executor's thread.
  void StopImporting() ABSL_LOCKS_EXCLUDED(mutex_);
  // The run is over: takes no memory any more, and tells the stream. Messages that are still in the
  // mailbox are dropped. OK means in good order.
  void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Why the run is over here; nullopt as long as it is not.
  std::optional<absl::Status> ended() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void WakeStream() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Awaits(int64_t stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const InboundEdgeOptions options_;
  Mailbox mailbox_;
  std::atomic<int64_t> bytes_received_ = 0;
  std::atomic<int64_t> messages_received_ = 0;
  LinkMeter meter_;

  mutable Mutex mutex_;
  BufferPool* pool_ ABSL_GUARDED_BY(mutex_);  // null once the run is over
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool closed_by_peer_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<StreamEnd> stream_ ABSL_GUARDED_BY(mutex_);  // the newest
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;                // one was open
  std::optional<LinkMeter::TimePoint> broken_since_ ABSL_GUARDED_BY(mutex_);
  ReceiveWindow window_ ABSL_GUARDED_BY(mutex_);
  int32_t unreleased_ ABSL_GUARDED_BY(mutex_) = 0;  // exported messages that were popped
  int32_t behind_ ABSL_GUARDED_BY(mutex_) = 0;      // messages popped after such
  DeviceShare* share_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Importer> importer_ ABSL_GUARDED_BY(mutex_);
  bool imports_ ABSL_GUARDED_BY(mutex_) = false;  // also while the importer ends
  std::string path_ ABSL_GUARDED_BY(mutex_) = kHostPath;
};

}  // namespace penstock
