#include "services/rpc/server_call.h"

#include "base/check.h"
#include "services/rpc/transport_security.h"

namespace penstock {
namespace {

// Several count as none, as the standard says; a malformed one is the tracing client's concern.
std::optional<TraceContext> TraceOf(const grpc::ServerContext& context) {
  const auto& metadata = context.client_metadata();
  if (metadata.count(kTraceparentKey) != 1) return std::nullopt;
  const grpc::string_ref text = metadata.find(kTraceparentKey)->second;
  absl::StatusOr<TraceContext> trace = ParseTraceparent({text.data(), text.size()});
  return trace.ok() ? std::optional(*trace) : std::nullopt;
}

}  // namespace

void StreamWaker::Wake() const {
  if (const std::shared_ptr<WakeTarget> target = target_.lock()) target->Wake();
}

void WakeTarget::Wake() {
  MutexLock lock(mutex_);
  if (wake_ != nullptr) wake_();
}

void WakeTarget::Detach() {
  MutexLock lock(mutex_);
  wake_ = nullptr;
}

void CallHost::Adopt(std::unique_ptr<ServerCall> call) {
  ServerCall* const adopted = call.get();
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    calls_.emplace(adopted, std::move(call));
    ++alive_;
  }
  adopted->Accept();
}

void CallHost::Remove(ServerCall* call) {
  std::unique_ptr<ServerCall> removed;
  {
    MutexLock lock(mutex_);
    const auto found = calls_.find(call);
    PENSTOCK_CHECK(found != calls_.end());
    removed = std::move(found->second);
    calls_.erase(found);
  }
  removed.reset();  // not under the lock: it gives memory back to gRPC
  MutexLock lock(mutex_);
  if (--alive_ == 0) empty_.NotifyAll();
}

void CallHost::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  // Under the lock, for a call may only be touched while it cannot be removed. EndEarly does not
  // call back into the host.
  for (auto& [call, owner] : calls_) call->EndEarly();
}

void CallHost::AwaitEmpty() {
  MutexLock lock(mutex_);
  while (alive_ > 0) empty_.Wait(mutex_);
}

CallInfo MakeCallInfo(const grpc::ServerContext& context) {
  return {context.peer(), CallerOf(context), absl::FromChrono(context.deadline()),
          TraceOf(context)};
}

std::string PeerOf(const CallInfo& call) {
  return call.caller.has_value() ? call.caller->ToUri() : call.peer.substr(0, call.peer.rfind(':'));
}

absl::Status CheckStillWanted(const CallInfo& call) {
  if (absl::Now() < call.deadline) return absl::OkStatus();
  return absl::DeadlineExceededError("the call's deadline passed before a handler was free");
}

absl::Status ServerStoppingError() { return absl::UnavailableError("the server is shutting down"); }

}  // namespace penstock
