#include "services/coordinator/worker_calls.h"

#include "services/rpc/channel.h"

namespace penstock {

WorkerCalls::WorkerCalls(std::shared_ptr<grpc::ChannelCredentials> workers)
    : workers_(std::move(workers)),
      poller_(std::make_unique<grpc::CompletionQueue>(), /*threads=*/1, "worker-calls") {}

WorkerCalls::~WorkerCalls() { CancelAll(); }

void WorkerCalls::CancelAll() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : in_progress_) {
    context->TryCancel();
  }
}

std::shared_ptr<v1::WorkerControl::Stub> WorkerCalls::StubFor(const std::string& address) {
  std::shared_ptr<v1::WorkerControl::Stub>& stub = stubs_[address];
  if (stub == nullptr) {
    stub = v1::WorkerControl::NewStub(MakeControlChannel(address, workers_));
    if (stubs_.size() > kStubsMax) {
      std::shared_ptr<v1::WorkerControl::Stub> kept = stub;
      stubs_ = {{address, kept}};
      return kept;
    }
  }
  return stub;
}

void WorkerCalls::Forget(grpc::ClientContext* context) {
  MutexLock lock(mutex_);
  in_progress_.erase(context);
}

}  // namespace penstock
