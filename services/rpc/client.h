// Calls to other processes. Every call has a deadline; errors name who was called.
//
// Two forms: Call blocks the calling thread; CallAsync comes back on a polling thread. A call that is made for
// something that is traced carries its context (base/trace_context.h).
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/sync_stream.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/trace_context.h"
#include "services/rpc/completion_poller.h"
#include "services/rpc/status.h"

namespace penstock {

// The trace that a call is part of; none: it carries nothing.
using CallTrace = std::optional<TraceContext>;

inline void AttachTrace(const CallTrace& trace, grpc::ClientContext& context) {
  if (trace.has_value()) context.AddMetadata(kTraceparentKey, FormatTraceparent(*trace));
}

// Calls `method` of `stub`, such as &v1::JobService::Stub::GetJob, and waits for the answer at most
// `timeout`. `peer` names the callee in errors: "coordinator 127.0.0.1:7070".
template <typename Stub, typename Base, typename Request, typename Response>
absl::StatusOr<Response> Call(const std::string& peer, Stub& stub,
                              grpc::Status (Base::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                              const std::type_identity_t<Request>& request, absl::Duration timeout,
                              const CallTrace& trace = {}) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  AttachTrace(trace, context);
  Response response;
  const absl::Status status = FromGrpcStatus((stub.*method)(&context, request, &response), peer);
  if (!status.ok()) return status;
  return response;
}

// One call on its way. Owns itself until it is complete, which its deadline guarantees.
template <typename Response>
class AsyncCall final : public CompletionTag {
 public:
  using Done = std::function<void(absl::StatusOr<Response>)>;
  AsyncCall(std::string peer, Done done) : peer_(std::move(peer)), done_(std::move(done)) {}

  void Complete(bool) override {
    const std::unique_ptr<AsyncCall> self(this);
    absl::Status status = FromGrpcStatus(status_, peer_);
    if (status.ok()) {
      done_(std::move(response_));
    } else {
      done_(std::move(status));  // what takes it to another thread has the only reference
    }
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader_;
  grpc::Status status_;
  Response response_;

 private:
  const std::string peer_;
  const Done done_;
};

// Starts a call and returns. `start`: the generated Async method, such as
// &v1::WorkerControl::Stub::AsyncStartRun. `done` is called exactly once, on a thread of `poller`, and
// must only enqueue. REQUIRES: `poller` outlives the call.
template <typename Stub, typename Base, typename Request, typename Response>
void CallAsync(const std::string& peer, Stub& stub,
               std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Base::*start)(
                   grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
               const std::type_identity_t<Request>& request, absl::Duration timeout,
               CompletionPoller& poller,
               std::type_identity_t<std::function<void(absl::StatusOr<Response>)>> done,
               const CallTrace& trace = {}) {
  auto* call = new AsyncCall<Response>(peer, std::move(done));  // deletes itself in Complete
  call->context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  AttachTrace(trace, call->context_);
  call->reader_ = (stub.*start)(&call->context_, request, poller.queue());
  call->reader_->Finish(&call->response_, &call->status_, call);
}

// Lets another thread, or a signal's, end a ReadStream.
class StreamCanceller {
 public:
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  // ReadStream calls it.
  void Attach(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    context_ = context;
    if (cancelled_ && context_ != nullptr) context_->TryCancel();
  }

 private:
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// Reads a stream to its end and hands each message to `on_message`, which returns false to stop.
// Errors also: DeadlineExceeded after `timeout` (resume the stream where it was), Cancelled when
// stopped.
template <typename Stub, typename Base, typename Request, typename Response>
absl::Status ReadStream(
    const std::string& peer, Stub& stub,
    std::unique_ptr<grpc::ClientReader<Response>> (Base::*method)(grpc::ClientContext*,
                                                                  const Request&),
    const std::type_identity_t<Request>& request, absl::Duration timeout,
    StreamCanceller& canceller,
    const std::type_identity_t<std::function<bool(const Response&)>>& on_message,
    const CallTrace& trace = {}) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  AttachTrace(trace, context);
  canceller.Attach(&context);
  const auto reader = (stub.*method)(&context, request);
  Response message;
  while (reader->Read(&message)) {
    if (!on_message(message)) context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  canceller.Attach(nullptr);
  return FromGrpcStatus(status, peer);
}

}  // namespace penstock
