// ActionTimer: measures the parts of the action in progress, waiting apart from work.
//
//   timer.Begin(action, &meter);
//   ... wait for a message ...    timer.Lap(Lane::kWait, Wait::kInput);
//   ... take it ...               timer.Lap(Lane::kReceive);
//   timer.End();
//
// Each lap becomes a span in the timeline and adds to the stage's meter; the laps of an action that are not
// waiting make its duration. Time between two actions is overhead, counted with the second one's stage.
//
// On a device that goes on working when a call returns, laps of Lane::kCompute are the device's time and
// all come a little later (worker/device_spans.h); elsewhere they are the host's, at once.
//
// Thread safety: the executor's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/status.h"
#include "worker/device_spans.h"
#include "worker/span_sink.h"

namespace penstock {

class ActionTimer {
 public:
  // `device`: null where the host's clock tells the device's time.
  ActionTimer(Clock& clock, TimelineRecorder& recorder, DeviceSpans* device)
      : clock_(clock), sink_(recorder), device_(device) {}

  // With a null `meter` laps are measured but not kept (validation). `waited_ns`: since the last action, if
  // the next one was waited for before it was known which it would be (Waited). Errors: of the device.
  absl::Status Begin(const Action& action, StageMeter* meter, int64_t waited_ns = 0) {
    span_.action = action;
    meter_ = meter;
    if (device_ != nullptr) {
      if (meter_ != nullptr) PENSTOCK_RETURN_IF_ERROR(device_->Prepare());
      device_->BeginRange(action);
      if (ComputesOnDevice()) device_->StartCompute();
    }
    const int64_t now_ns = clock_.MonotonicNs();
    if (meter_ != nullptr && goes_on_) {
      meter_->AddBetween(std::max<int64_t>(0, now_ns - span_.start_ns - waited_ns));
    }
    goes_on_ = meter_ != nullptr;
    span_.start_ns = now_ns;
    return absl::OkStatus();
  }

  // Time between the last action and the next one is not training.
  void Pause() { goes_on_ = false; }

  // Ends the lap that began with the last one; the next begins.
  void Lap(Lane lane, Wait wait = Wait::kNone) {
    span_.end_ns = clock_.MonotonicNs();
    span_.lane = lane;
    span_.wait = wait;
    if (meter_ != nullptr) Keep();
    span_.start_ns = span_.end_ns;
  }

  // Before it was known which action it would be, it was waited for: a lap of its own. After Begin.
  void Waited(int64_t since_ns, int64_t until_ns, Wait wait) {
    const int64_t begun_ns = span_.start_ns;
    span_.start_ns = since_ns;
    span_.end_ns = until_ns;
    span_.lane = Lane::kWait;
    span_.wait = wait;
    if (meter_ != nullptr) Keep();
    span_.start_ns = begun_ns;
  }

  // What went on beside the thread, of the action in progress, if anybody can tell when.
  void Beside(Lane lane, int64_t start_ns, int64_t end_ns) {
    if (meter_ == nullptr || end_ns <= start_ns) return;
    const Span span = {span_.worker, lane, Wait::kNone, span_.action, start_ns, end_ns};
    sink_.AddBeside(span, *meter_);
  }

  // When the lap in progress began.
  int64_t lap_start_ns() const { return span_.start_ns; }

  // A copy to or from the device is asked for between these two. Without EndCopy it is not counted: one that
  // first waited for a message or for credit began later.
  void StartCopy(CopyDirection direction) {
    if (device_ != nullptr && meter_ != nullptr) device_->StartCopy(direction);
  }
  void EndCopy(CopyDirection direction) {
    if (device_ != nullptr && meter_ != nullptr) device_->EndCopy(direction, *meter_);
  }

  void End() {
    if (device_ != nullptr) device_->EndRange();
    if (meter_ == nullptr) return;
    if (device_ != nullptr) {
      device_->End(span_.action, *meter_);
    } else {
      sink_.End(span_.action.kind, *meter_);
    }
  }

  // Until the device has done all that was asked of it. Errors: of the device.
  absl::Status Finish() { return device_ == nullptr ? absl::OkStatus() : device_->Finish(); }

 private:
  bool ComputesOnDevice() const {
    const ActionKind kind = span_.action.kind;
    return device_ != nullptr && meter_ != nullptr &&
           (kind == ActionKind::kForward || kind == ActionKind::kRecompute ||
            kind == ActionKind::kBackwardInput || kind == ActionKind::kBackwardWeight ||
            kind == ActionKind::kUpdate);
  }

  void Keep() {
    if (device_ == nullptr) {
      sink_.Add(span_, *meter_);
    } else if (span_.lane == Lane::kCompute) {
      device_->EndCompute(span_, *meter_);
    } else {
      device_->Add(span_, *meter_);
      if (ComputesOnDevice()) device_->StartCompute();
    }
  }

  Clock& clock_;
  SpanSink sink_;
  DeviceSpans* const device_;
  StageMeter* meter_ = nullptr;
  bool goes_on_ = false;  // the last action was metered
  Span span_;
};

}  // namespace penstock
