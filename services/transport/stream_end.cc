#include "services/transport/stream_end.h"

#include <grpc/support/time.h>

#include <utility>
#include <vector>

namespace penstock {

void StreamSet::Add(std::shared_ptr<StreamEnd> stream) {
  StreamEnd* const added = stream.get();
  {
    MutexLock lock(mutex_);
    streams_.emplace(added, std::move(stream));
  }
  added->Wake();
}

void StreamSet::Remove(StreamEnd* stream) {
  std::shared_ptr<StreamEnd> removed;  // may be the last reference: dropped after the lock
  MutexLock lock(mutex_);
  const auto found = streams_.find(stream);
  removed = std::move(found->second);
  streams_.erase(found);
  if (streams_.empty()) empty_.NotifyAll();
}

void StreamSet::BreakAll() {
  std::vector<std::shared_ptr<StreamEnd>> streams;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->Break();
}

void StreamSet::AwaitEmpty() {
  MutexLock lock(mutex_);
  while (!streams_.empty()) empty_.Wait(mutex_);
}

void StreamEnd::Wake() {
  MutexLock lock(wake_mutex_);
  if (wake_pending_ || removed_) return;
  wake_pending_ = true;
  wake_alarm_.Set(&queue_, gpr_inf_past(GPR_CLOCK_MONOTONIC), &wake_tag_);
}

void StreamEnd::SetAlarm(grpc::Alarm& alarm, absl::Duration from_now, CompletionTag* tag) {
  const gpr_timespec wait = gpr_time_from_millis(
      absl::ToInt64Milliseconds(absl::Ceil(from_now, absl::Milliseconds(1))), GPR_TIMESPAN);
  alarm.Set(&queue_, gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), wait), tag);
}

void StreamEnd::Break() {
  {
    MutexLock lock(wake_mutex_);
    broken_ = true;
  }
  Wake();
}

void StreamEnd::OnWakeTag(bool) {
  bool broken = false;
  {
    MutexLock lock(wake_mutex_);
    wake_pending_ = false;
    broken = broken_;
  }
  OnWake(broken);
  RemoveIfOver();
}

void StreamEnd::RemoveIfOver() {
  if (!over_ || operations_ > 0) return;
  {
    MutexLock lock(wake_mutex_);
    if (wake_pending_ || removed_) return;
    removed_ = true;
  }
  set_.Remove(this);
}

}  // namespace penstock
