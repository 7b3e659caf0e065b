// The calls of a server, over gRPC's completion-queue interface: who owns them and how they run.
//
// A call is posted before it exists: it waits in gRPC for a client (Accept), gets its request on a
// polling thread, posts its successor, and hands the work to its lane (call_lane.h). A thread of the lane
// answers, the polling thread sees the answer off, and the call is removed. So polling threads only
// enqueue.
//
// Users need only the handler types; the rest is for server.h.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/async_unary_call.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/trace_context.h"
#include "services/rpc/call_lane.h"
#include "services/rpc/completion_poller.h"
#include "services/rpc/limits.h"
#include "services/rpc/status.h"
#include "services/security/identity.h"

namespace penstock {

// The information that a handler has about its call beside the request.
struct CallInfo {
  std::string peer;                              // "ipv4:127.0.0.1:50312"
  std::optional<Identity> caller;                // by its certificate; none in plain text
  absl::Time deadline = absl::InfiniteFuture();  // the client's
  // The trace that it is part of; none if the client sent no valid one.
  std::optional<TraceContext> trace = std::nullopt;
  // Runs a task on a thread of the call's lane, for a handler added with UnaryAsync that has waited for something without
  // one. Any thread. REQUIRES: before the reply; a task that was handed over earlier has begun.
  std::function<void(std::function<void()>)> run = nullptr;
};

// Returns OK, or why a call that has waited for a thread is not worth going on with.
absl::Status CheckStillWanted(const CallInfo& call);

// Runs on a thread of its lane, which all calls of these callers share; may block for a moment, not
// beyond the deadline.
template <typename Request, typename Response>
using UnaryHandler = std::function<absl::StatusOr<Response>(const Request&, const CallInfo&)>;

// Ends a call with its answer. Any thread; call it exactly once, and soon: the server's shutdown
// waits for it.
template <typename Response>
using Reply = std::function<void(absl::StatusOr<Response>)>;

// For a later answer: runs on a thread of its lane, arranges for `reply`, and returns, so that no
// thread waits. The request lives until the reply.
template <typename Request, typename Response>
using AsyncUnaryHandler =
    std::function<void(const Request&, const CallInfo&, Reply<Response> reply)>;

// The next thing that a stream does.
template <typename Response>
struct StreamStep {
  enum class Kind { kMessage, kWait, kEnd };
  Kind kind = Kind::kWait;
  Response message;     // of kMessage
  absl::Status status;  // of kEnd

  static StreamStep Message(Response message) { return {Kind::kMessage, std::move(message), {}}; }
  static StreamStep Wait() { return {}; }
  static StreamStep End(absl::Status status) { return {Kind::kEnd, {}, std::move(status)}; }
};

// The source of a stream's messages: called again whenever the last message has left, so a slow
// client holds nothing but its place. Never called twice at a time; runs on threads of the lane.
template <typename Response>
using StreamPull = std::function<StreamStep<Response>()>;

class WakeTarget;

// Tells a stream that waits that there may be something to pull. Copyable, from any thread, safe and
// without effect when the stream is over.
class StreamWaker {
 public:
  StreamWaker() = default;
  explicit StreamWaker(std::weak_ptr<WakeTarget> target) : target_(std::move(target)) {}
  void Wake() const;
  // False once the stream is over: forget the waker.
  bool alive() const { return !target_.expired(); }

 private:
  std::weak_ptr<WakeTarget> target_;
};

// Makes the source of one client's stream; runs on a thread of the lane. An error ends the stream. The source is destroyed
// when the stream is over, on a polling thread, which must not be made to wait.
template <typename Request, typename Response>
using StreamHandler = std::function<absl::StatusOr<StreamPull<Response>>(
    const Request&, const CallInfo&, StreamWaker)>;

// ------------------------------------------------------------------------------- for server.h alone

// One call of any kind. Owned by its CallHost from Adopt to Remove.
class ServerCall {
 public:
  virtual ~ServerCall() = default;
  // Posts the call: gRPC gives it the next client.
  virtual void Accept() = 0;
  // The server stops: end soon if there is no other end in sight.
  virtual void EndEarly() {}
};

// Owns a server's calls.
class CallHost {
 public:
  CallHost(grpc::ServerCompletionQueue* queue, const CallLanes& lanes)
      : queue_(queue), lanes_(lanes) {}

  grpc::ServerCompletionQueue* queue() const { return queue_; }
  CallLane& lane(Callers callers) const { return *lanes_.at(callers); }

  // Takes the call over and posts it; drops it if the host is closed.
  void Adopt(std::unique_ptr<ServerCall> call) ABSL_LOCKS_EXCLUDED(mutex_);
  // REQUIRES: no operation of the call is in progress. Destroys it.
  void Remove(ServerCall* call) ABSL_LOCKS_EXCLUDED(mutex_);
  // No call is adopted any more, and those that would go on for ever end.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when all calls are removed. They end because the server is shut down and handlers end.
  void AwaitEmpty() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  grpc::ServerCompletionQueue* const queue_;
  const CallLanes& lanes_;
  Mutex mutex_;
  CondVar empty_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int alive_ ABSL_GUARDED_BY(mutex_) = 0;  // calls that are not destroyed yet
  std::unordered_map<ServerCall*, std::unique_ptr<ServerCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

CallInfo MakeCallInfo(const grpc::ServerContext& context);
// Returns whose limits a call counts for: the identity, or the address without the port.
std::string PeerOf(const CallInfo& call);
absl::Status ServerStoppingError();

template <typename Service, typename Request, typename Response>
struct UnaryMethod {
  Service& service;
  Callers callers;
  std::function<void(Service&, grpc::ServerContext*, Request*,
                     grpc::ServerAsyncResponseWriter<Response>*, grpc::ServerCompletionQueue*,
                     void* tag)>
      accept;
  AsyncUnaryHandler<Request, Response> handler;
};

template <typename Service, typename Request, typename Response>
class UnaryCall final : public ServerCall {
 public:
  using Method = UnaryMethod<Service, Request, Response>;
  UnaryCall(CallHost& host, const Method& method)
      : host_(host), method_(method), lane_(host.lane(method.callers)) {}

  void Accept() override {
    method_.accept(method_.service, &context_, &request_, &responder_, host_.queue(),
                   &accepted_tag_);
  }

 private:
  void OnAccepted(bool ok) {
    if (!ok) return host_.Remove(this);
    host_.Adopt(std::make_unique<UnaryCall>(host_, method_));
    info_ = MakeCallInfo(context_);
    absl::StatusOr<CallLane::Place> place = lane_.Admit(PeerOf(info_));
    if (!place.ok()) return Answer(place.status());
    place_ = *std::move(place);
    lane_.Run([this] { Handle(); });
  }
  void Handle() {
    if (absl::Status wanted = CheckStillWanted(info_); !wanted.ok()) return Answer(wanted);
    info_.run = [this](std::function<void()> task) { lane_.Run(std::move(task)); };
    method_.handler(request_, info_,
                    [this](const absl::StatusOr<Response>& result) { Answer(result); });
  }
  void Answer(const absl::StatusOr<Response>& result) {
    place_.GiveBack();  // first, for the call may be gone after Finish
    if (result.ok()) {
      responder_.Finish(*result, grpc::Status::OK, &finished_tag_);
    } else {
      responder_.FinishWithError(ToGrpcStatus(result.status()), &finished_tag_);
    }
  }
  void OnFinished(bool) { host_.Remove(this); }

  CallHost& host_;
  const Method& method_;
  CallLane& lane_;
  CallLane::Place place_;
  grpc::ServerContext context_;
  CallInfo info_;  // from when the call came
  Request request_;
  grpc::ServerAsyncResponseWriter<Response> responder_{&context_};
  MethodTag<UnaryCall, &UnaryCall::OnAccepted> accepted_tag_{this};
  MethodTag<UnaryCall, &UnaryCall::OnFinished> finished_tag_{this};
};

// Where wakers find their stream as long as it lives.
class WakeTarget {
 public:
  explicit WakeTarget(std::function<void()> wake) : wake_(std::move(wake)) {}
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  // After it returns, Wake has no effect.
  void Detach() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
};

template <typename Service, typename Request, typename Response>
struct StreamMethod {
  Service& service;
  Callers callers;
  std::function<void(Service&, grpc::ServerContext*, Request*, grpc::ServerAsyncWriter<Response>*,
                     grpc::ServerCompletionQueue*, void* tag)>
      accept;
  StreamHandler<Request, Response> handler;
};

// One client's stream. At most one thing is in progress at a time (a pull or an operation of gRPC);
// the thread that ends it looks at what came in meanwhile and starts the next.
template <typename Service, typename Request, typename Response>
class StreamCall final : public ServerCall {
 public:
  using Method = StreamMethod<Service, Request, Response>;
  StreamCall(CallHost& host, const Method& method)
      : host_(host), method_(method), lane_(host.lane(method.callers)) {}

  void Accept() override {
    context_.AsyncNotifyWhenDone(&done_tag_);
    method_.accept(method_.service, &context_, &request_, &writer_, host_.queue(), &accepted_tag_);
  }

  void EndEarly() override ABSL_LOCKS_EXCLUDED(mutex_) { EndWith(ServerStoppingError()); }

 private:
  using Step = StreamStep<Response>;

  void OnAccepted(bool ok) {
    if (!ok) return host_.Remove(this);
    host_.Adopt(std::make_unique<StreamCall>(host_, method_));
    info_ = MakeCallInfo(context_);
    absl::StatusOr<CallLane::Place> place = lane_.Admit(PeerOf(info_));
    MutexLock lock(mutex_);
    if (place.ok()) {
      place_ = *std::move(place);
    } else {
      end_ = place.status();
    }
    accepted_ = true;
    target_ = std::make_shared<WakeTarget>([this] { OnWake(); });
    Next();
  }

  // Starts whatever is to be done, if nothing is in progress.
  void Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!accepted_ || busy_ || finishing_) return;
    if (!end_.ok() || ended_) {
      finishing_ = true;
      writer_.Finish(ToGrpcStatus(end_), &finished_tag_);
    } else if (wake_pending_) {
      wake_pending_ = false;
      busy_ = true;
      lane_.Run([this] { Pull(); });
    }
  }

  void Pull() ABSL_LOCKS_EXCLUDED(mutex_) {
    Step step = PullStep();
    MutexLock lock(mutex_);
    if (step.kind == Step::Kind::kMessage && end_.ok()) {
      wake_pending_ = true;  // there may be more
      writer_.Write(step.message, &written_tag_);
      return;  // still busy, until it is written
    }
    if (step.kind == Step::Kind::kEnd && end_.ok()) {
      end_ = step.status;
      ended_ = true;
    }
    busy_ = false;
    Next();
  }

  // Only one pull runs at a time, so pull_ needs no lock.
  Step PullStep() {
    if (pull_ == nullptr) {
      absl::StatusOr<StreamPull<Response>> pull =
          method_.handler(request_, info_, StreamWaker(target_));
      if (!pull.ok()) return Step::End(pull.status());
      pull_ = *std::move(pull);
    }
    return pull_();
  }

  void OnWritten(bool ok) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    busy_ = false;
    if (!ok && end_.ok()) end_ = absl::CancelledError("the client is gone");
    Next();
  }
  void OnWake() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    wake_pending_ = true;
    Next();
  }
  void OnDone(bool) ABSL_LOCKS_EXCLUDED(mutex_) {
    EndWith(absl::CancelledError("the client is gone"));
    RemoveAfter(done_);
  }
  void OnFinished(bool) { RemoveAfter(finished_); }

  void EndWith(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (end_.ok() && !ended_) end_ = status;
    Next();
  }
  // Notes done_ or finished_. Both tags must have come back before the call may go.
  void RemoveAfter(bool& event) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::shared_ptr<WakeTarget> target;
    {
      MutexLock lock(mutex_);
      event = true;
      if (!done_ || !finished_) return;
      target = std::move(target_);
    }
    target
        ->Detach();  // not under our lock, which a waking thread wants while it holds the target's
    host_.Remove(this);
  }

  CallHost& host_;
  const Method& method_;
  CallLane& lane_;
  CallLane::Place place_;  // for as long as the stream is open
  grpc::ServerContext context_;
  CallInfo info_;  // from when the call came
  Request request_;
  grpc::ServerAsyncWriter<Response> writer_{&context_};
  StreamPull<Response> pull_;

  Mutex mutex_;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<WakeTarget> target_;  // set once, before the first pull
  bool accepted_ ABSL_GUARDED_BY(mutex_) = false;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // a pull or a write is in progress
  bool wake_pending_ ABSL_GUARDED_BY(mutex_) = true;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // by its source
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ = false;  // protected by mutex_, as finished_
  bool finished_ = false;
  MethodTag<StreamCall, &StreamCall::OnAccepted> accepted_tag_{this};
  MethodTag<StreamCall, &StreamCall::OnWritten> written_tag_{this};
  MethodTag<StreamCall, &StreamCall::OnFinished> finished_tag_{this};
  MethodTag<StreamCall, &StreamCall::OnDone> done_tag_{this};
};

}  // namespace penstock
