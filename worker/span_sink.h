// SpanSink: where measured spans go, in the order of a worker's actions: the timeline, and the stage's meter.
//
// Thread safety: the executor's thread.
#pragma once

#include <cstdint>
#include <utility>

#include "worker/stage_meter.h"
#include "worker/timeline_recorder.h"

namespace penstock {

class SpanSink {
 public:
  explicit SpanSink(TimelineRecorder& recorder) : recorder_(recorder) {}

  // A span of the action in progress.
  void Add(const Span& span, StageMeter& meter) {
    if (span.lane != Lane::kWait) {
      worked_ = true;
      work_ns_ += span.duration_ns();
    }
    meter.AddSpan(span);
    recorder_.Record(span);
  }

  // A span of what ran beside it.
  void AddBeside(const Span& span, StageMeter& meter) {
    meter.AddSpan(span);
    recorder_.Record(span);
  }

  // The action is done: its spans that are not waiting make its duration.
  void End(ActionKind kind, StageMeter& meter) {
    const int64_t work_ns = std::exchange(work_ns_, 0);
    if (std::exchange(worked_, false)) meter.AddDuration(kind, work_ns);
  }

 private:
  TimelineRecorder& recorder_;
  bool worked_ = false;  // whether any span was not waiting
  int64_t work_ns_ = 0;
};

}  // namespace penstock
