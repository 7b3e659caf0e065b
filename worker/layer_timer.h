// LayerTimer: what a device takes for each layer inside the passes of a stage.
//
// Where calls return when their work is done it is the host's clock that tells, and otherwise marks between the work that
// the device does in order (compute/device_marks.h), so that nothing waits between two layers.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "compute/backend.h"

namespace penstock {

class LayerTimer {
 public:
  // What a layer does in a step of a stage.
  enum Work : uint8_t { kForward, kBackwardInput, kBackwardWeight, kUpdate };
  static constexpr int kWorks = 4;
  // By layer of the model, in nanoseconds.
  using Times = std::array<std::vector<int64_t>, kWorks>;

  // `entries_max`: calls of Begin, Enter and End between two calls of Take. REQUIRES: both outlive the timer.
  // Errors: of the device.
  static absl::StatusOr<std::unique_ptr<LayerTimer>> Create(Backend& backend, Clock& clock,
                                                            int layers, int entries_max);

  // The work begins, with that layer.
  void Begin(Work work, int layer);
  // It goes on with this layer, which may be the same one. REQUIRES: it has begun.
  void Enter(int layer);
  void End();

  // Waits for the device. Returns the sums of what was timed since the last call; the reference is good until the next.
  // Errors: of the device.
  absl::StatusOr<const Times*> Take();

 private:
  // What is timed between this entry and the next.
  struct Entry {
    Work work = kForward;
    int layer = 0;       // of the model; -1: nothing
    int64_t now_ns = 0;  // of the host
  };

  LayerTimer(Backend& backend, Clock& clock, int layers, std::unique_ptr<DeviceMarks> marks,
             int entries_max);
  void Add(Work work, int layer);
  int64_t ElapsedNs(int from, int to) const;

  Backend& backend_;
  Clock& clock_;
  const std::unique_ptr<DeviceMarks> marks_;  // null: the host's clock tells
  std::vector<Entry> entries_;
  Times times_;
};

}  // namespace penstock
