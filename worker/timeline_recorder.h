// TimelineRecorder: the most recent spans of one worker, kept without a lock or an allocation.
//
// One writer (the executor's thread) overwrites a ring of fixed size; a reader copies it and drops the
// spans that were overwritten meanwhile. Every word of the ring is atomic, so this is well-defined, and
// on common processors costs what plain stores cost.
//
// Thread safety: Record by one thread, Recent by any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "schedule/timeline.h"

namespace penstock {

class TimelineRecorder {
 public:
  // REQUIRES: capacity_spans > 0.
  TimelineRecorder(WorkerId worker, int64_t capacity_spans);

  // `span.worker` is not kept; it is this recorder's.
  void Record(const Span& span);

  // The spans that are still there, oldest first.
  std::vector<Span> Recent() const;

 private:
  using Slot = std::array<std::atomic<uint64_t>, 4>;

  const WorkerId worker_;
  const int64_t capacity_;
  std::unique_ptr<Slot[]> slots_;
  std::atomic<int64_t> begun_ = 0;  // spans whose slot may be half written
  std::atomic<int64_t> done_ = 0;   // spans that are there
};

}  // namespace penstock
