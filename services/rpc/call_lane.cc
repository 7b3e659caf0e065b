#include "services/rpc/call_lane.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace penstock {

CallLane::CallLane(const std::string& name, CallLaneLimits limits)
    : limits_(limits), tasks_(std::make_unique<TaskPool>(limits.threads, limits.calls_max, name)) {}

CallLane::~CallLane() {
  tasks_.reset();
  MutexLock lock(mutex_);
  PENSTOCK_CHECK(calls_ == 0);
}

absl::StatusOr<CallLane::Place> CallLane::Admit(const std::string& peer) {
  MutexLock lock(mutex_);
  if (calls_ >= limits_.calls_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has ", calls_,
                     " calls of this kind in progress, which is its limit; try again later"));
  }
  int& own = calls_of_[peer];
  if (own >= limits_.calls_per_peer_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        peer, " has ", own, " calls of this kind in progress, which is the limit for one peer (",
        limits_.calls_max, " for all); wait for their answers, then make fewer at a time"));
  }
  ++own;
  ++calls_;
  return Place(this, peer);
}

void CallLane::Run(std::function<void()> task) {
  // There is a place in the queue for each call.
  PENSTOCK_CHECK(tasks_->Submit(std::move(task)));
}

void CallLane::Leave(const std::string& peer) {
  MutexLock lock(mutex_);
  --calls_;
  const auto own = calls_of_.find(peer);
  if (--own->second == 0) calls_of_.erase(own);
}

void CallLane::Place::GiveBack() {
  if (CallLane* const lane = std::exchange(lane_, nullptr)) lane->Leave(peer_);
}

}  // namespace penstock
