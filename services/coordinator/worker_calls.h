// WorkerCalls: calls to workers that come back on a polling thread, and that can be cancelled
// together when the process ends, so that ending does not wait for the longest deadline.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/security/credentials.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/client.h"
#include "services/rpc/completion_poller.h"

namespace penstock {

class WorkerCalls {
 public:
  // `workers`: the credentials they are reached with (TransportSecurity::ForChannel).
  explicit WorkerCalls(std::shared_ptr<grpc::ChannelCredentials> workers);
  // CancelAll(), then waits for the calls to come back.
  ~WorkerCalls();
  WorkerCalls(const WorkerCalls&) = delete;
  WorkerCalls& operator=(const WorkerCalls&) = delete;

  // Calls `method` (such as &v1::WorkerControl::Stub::AsyncStartRun) of the worker at `address`.
  // `done` is called exactly once, on the polling thread, and must only enqueue.
  template <typename Base, typename Request, typename Response>
  void Start(const std::string& worker, const std::string& address,
             std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Base::*method)(
                 grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
             const std::type_identity_t<Request>& request, absl::Duration timeout,
             std::function<void(absl::StatusOr<std::type_identity_t<Response>>)> done,
             const CallTrace& trace = {}) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends calls in progress soon with Cancelled; later ones at once.
  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Stubs kept for reuse; beyond it all are dropped (a channel costs little to make again).
  static constexpr size_t kStubsMax = 1024;

  std::shared_ptr<v1::WorkerControl::Stub> StubFor(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<grpc::ChannelCredentials> workers_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<v1::WorkerControl::Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
  std::set<grpc::ClientContext*> in_progress_ ABSL_GUARDED_BY(mutex_);
  CompletionPoller poller_;  // last: its threads use all of the above
};

template <typename Base, typename Request, typename Response>
void WorkerCalls::Start(const std::string& worker, const std::string& address,
                        std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Base::*method)(
                            grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
                        const std::type_identity_t<Request>& request, absl::Duration timeout,
                        std::function<void(absl::StatusOr<std::type_identity_t<Response>>)> done,
                        const CallTrace& trace) {
  const std::string peer = worker + " (" + address + ")";
  // The call deletes itself when it is complete; its context is forgotten before that.
  AsyncCall<Response>* call = nullptr;
  auto context = std::make_shared<grpc::ClientContext*>(nullptr);
  call = new AsyncCall<Response>(
      peer, [this, context, done = std::move(done)](absl::StatusOr<Response> response) {
        Forget(*context);
        done(std::move(response));
      });
  *context = &call->context_;
  call->context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  AttachTrace(trace, call->context_);
  MutexLock lock(mutex_);
  in_progress_.insert(*context);
  if (cancelled_) {
    call->context_.TryCancel();
  }
  call->reader_ = (*StubFor(address).*method)(&call->context_, request, poller_.queue());
  call->reader_->Finish(&call->response_, &call->status_, call);
}

}  // namespace penstock
