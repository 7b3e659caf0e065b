// StreamEnd: what the two ends of a tensor stream have in common.
//
// A stream end belongs to one polling thread: all its tags come back there, so what only they touch
// needs no lock. Other threads leave word under a mutex and call Wake, which makes OnWake run on the
// polling thread. They never start an operation of gRPC themselves.
//
// A StreamSet owns ends, together with everybody who still uses them (hence shared_ptr); the set lets
// go of one when it is over and none of its operations is in progress.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <memory>
#include <unordered_map>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/rpc/completion_poller.h"

namespace penstock {

class StreamEnd;

// Thread safety: all methods may be called from any thread.
class StreamSet {
 public:
  // Owns `stream` and wakes it for the first time.
  void Add(std::shared_ptr<StreamEnd> stream) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(StreamEnd* stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // Breaks all streams.
  void BreakAll() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when all are gone, which a broken stream is as soon as gRPC has let go of it.
  void AwaitEmpty() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  CondVar empty_;
  std::unordered_map<StreamEnd*, std::shared_ptr<StreamEnd>> streams_ ABSL_GUARDED_BY(mutex_);
};

class StreamEnd {
 public:
  StreamEnd(grpc::CompletionQueue& queue, StreamSet& set) : queue_(queue), set_(set) {}
  virtual ~StreamEnd() = default;
  StreamEnd(const StreamEnd&) = delete;
  StreamEnd& operator=(const StreamEnd&) = delete;

  // Any thread. OnWake will run, once for several calls; has no effect when the stream is over.
  void Wake() ABSL_LOCKS_EXCLUDED(wake_mutex_);
  // Any thread. Cuts the connection: whatever is in progress fails soon.
  void Break() ABSL_LOCKS_EXCLUDED(wake_mutex_);

 protected:
  // Somebody called Wake, or Break.
  virtual void OnWake(bool broken) = 0;

  // The tag of an operation that calls `Method` on the polling thread. Begin(tag) starts
  // operations.
  template <typename T, void (T::*Method)(bool)>
  class OperationTag final : public CompletionTag {
   public:
    explicit OperationTag(T* stream) : stream_(stream) {}
    void Complete(bool ok) override {
      --stream_->operations_;
      (stream_->*Method)(ok);
      stream_->RemoveIfOver();
    }

   private:
    T* const stream_;
  };

  // The polling thread alone calls it.
  CompletionTag* Begin(CompletionTag& tag) {
    ++operations_;
    return &tag;
  }
  // Sets an alarm of the polling thread, on the monotonic clock: a jump of the calendar clock changes nothing.
  void SetAlarm(grpc::Alarm& alarm, absl::Duration from_now, CompletionTag* tag);
  // Nothing more will happen once the operations in progress have ended.
  void SetOver() { over_ = true; }

  grpc::CompletionQueue& queue() { return queue_; }

 private:
  void OnWakeTag(bool ok) ABSL_LOCKS_EXCLUDED(wake_mutex_);
  void RemoveIfOver() ABSL_LOCKS_EXCLUDED(wake_mutex_);

  grpc::CompletionQueue& queue_;
  StreamSet& set_;

  // Used by the polling thread.
  int operations_ = 0;
  bool over_ = false;

  Mutex wake_mutex_;
  bool wake_pending_ ABSL_GUARDED_BY(wake_mutex_) = false;  // the alarm's tag is still to come
  bool broken_ ABSL_GUARDED_BY(wake_mutex_) = false;
  bool removed_ ABSL_GUARDED_BY(wake_mutex_) = false;
  grpc::Alarm wake_alarm_ ABSL_GUARDED_BY(wake_mutex_);
  MethodTag<StreamEnd, &StreamEnd::OnWakeTag> wake_tag_{this};
};

}  // namespace penstock
