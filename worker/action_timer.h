// ActionTimer: measures the parts of the action in progress, waiting apart from work.
//
//   timer.Begin(action, &meter);
//   ... wait for a message ...    timer.Lap(Lane::kWait, Wait::kInput);
//   ... take it ...               timer.Lap(Lane::kReceive);
//   timer.End();
//
// Each lap becomes a span in the timeline and adds to the stage's meter; the laps of an action that are
// not waiting make its duration. What lies between two actions is nobody's: the overhead.
//
// Thread safety: the executor's thread.
#pragma once

#include "base/clock.h"
#include "worker/stage_meter.h"
#include "worker/timeline_recorder.h"

namespace penstock {

class ActionTimer {
 public:
  ActionTimer(Clock& clock, TimelineRecorder& recorder) : clock_(clock), recorder_(recorder) {}

  // With a null `meter` laps are measured but not kept (validation).
  void Begin(const Action& action, StageMeter* meter) {
    span_.action = action;
    meter_ = meter;
    worked_ = false;
    work_ns_ = 0;
    span_.start_ns = clock_.MonotonicNs();
  }

  // Ends the lap that began with the last one; the next begins.
  void Lap(Lane lane, Wait wait = Wait::kNone) {
    span_.end_ns = clock_.MonotonicNs();
    span_.lane = lane;
    span_.wait = wait;
    if (lane != Lane::kWait) {
      worked_ = true;
      work_ns_ += span_.duration_ns();
    }
    if (meter_ != nullptr) {
      meter_->AddSpan(span_);
      recorder_.Record(span_);
    }
    span_.start_ns = span_.end_ns;
  }

  void End() {
    if (meter_ != nullptr && worked_) meter_->AddDuration(span_.action.op, work_ns_);
  }

 private:
  Clock& clock_;
  TimelineRecorder& recorder_;
  StageMeter* meter_ = nullptr;
  Span span_;
  bool worked_ = false;  // whether any lap was not waiting
  int64_t work_ns_ = 0;
};

}  // namespace penstock
