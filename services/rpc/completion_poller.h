// CompletionPoller: threads of our own that take what gRPC has completed off a queue and tell the
// tag whose operation it was.
//
// An operation is started with a CompletionTag* as its tag; the tag's Complete is called exactly once
// for it, on one of the poller's threads, and must not block.
#pragma once

#include <grpcpp/completion_queue.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace penstock {

class CompletionTag {
 public:
  virtual ~CompletionTag() = default;
  // `ok` as gRPC defines it for the operation; false means that it was not done.
  virtual void Complete(bool ok) = 0;
};

// The tag that calls one method of one object; a member of that object, one for each operation that
// may be in progress at a time.
template <typename T, void (T::*Method)(bool)>
class MethodTag final : public CompletionTag {
 public:
  explicit MethodTag(T* object) : object_(object) {}
  void Complete(bool ok) override { (object_->*Method)(ok); }

 private:
  T* const object_;
};

class CompletionPoller {
 public:
  // `name` is shown for the threads by the system's tools, 15 letters at most.
  CompletionPoller(std::unique_ptr<grpc::CompletionQueue> queue, int threads,
                   const std::string& name);
  // REQUIRES: no operation is started on the queue any more. Returns when all have been completed.
  ~CompletionPoller();
  CompletionPoller(const CompletionPoller&) = delete;
  CompletionPoller& operator=(const CompletionPoller&) = delete;

  grpc::CompletionQueue* queue() { return queue_.get(); }

 private:
  void Poll();

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  std::vector<std::thread> threads_;
};

// Names the calling thread for the system's tools.
void NameThread(const std::string& name);

}  // namespace penstock
