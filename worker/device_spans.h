// DeviceSpans: the times of a worker whose device goes on working after a call returns.
//
// The host's clock sees F, R, I, W and UPDATE being asked for, not being done. So a mark is put on the device's
// order of work (compute/device_marks.h) before and after each of them, and read when the device has passed
// it. A stage's meter and the timeline then hold:
//
//   compute   from mark to mark: the device's time. It begins when the work before it is done, and ends
//             when its own is; a device that waits for the host inside an action counts as busy.
//   the rest  (handing over, exchanging, waiting) is the host's time, of which only what follows the last
//             compute span counts: before that the device has work, and nothing is lost. Work that was over
//             by then is a point at that moment: a tensor sent is on its way once it is computed. So the
//             spans of a worker never overlap, and a wait is one that the device felt.
//   overhead  what is left of the window: asking for actions while the device has nothing to do.
//   copies    by themselves (StageMeter::copies), because they run beside all this.
//
// The device's clock is tied to the host's by an anchor: a mark put while the device is idle, with the
// host's time when it was passed (the middle of the call's and the answer's, some microseconds apart).
// Clocks drift apart by some 50 us in a second, so the anchor is renewed: after a second as soon as the
// device is idle, after ten in any case, for which the device works off what it has been asked for.
//
// Spans wait in a ring until the device has passed their marks; then they go on in the order of the actions.
// Nothing is allocated after the constructor.
//
// Thread safety: the executor's thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "compute/device_marks.h"
#include "worker/span_sink.h"

namespace penstock {

class DeviceSpans {
 public:
  // Spans that wait for the device at most; of marks each needs two.
  static constexpr int kEntries = 1 << 10;
  static constexpr int kMarks = 2 * kEntries + 8;
  static constexpr int64_t kAnchorAgeNs = 1'000'000'000;
  static constexpr int64_t kAnchorAgeMaxNs = 10'000'000'000;

  // `synchronize`: as Backend's, of the device that made `marks`.
  // REQUIRES: `marks` are at least kMarks; what is referred to outlives this.
  DeviceSpans(Clock& clock, std::function<absl::Status()> synchronize,
              std::unique_ptr<DeviceMarks> marks, TimelineRecorder& recorder);
  ~DeviceSpans() { EndRange(); }
  DeviceSpans(const DeviceSpans&) = delete;
  DeviceSpans& operator=(const DeviceSpans&) = delete;

  // Before an action: makes room, and renews the anchor when it is time.
  // Errors: of the device; Internal (marks are not passed by a device that is done).
  absl::Status Prepare();

  // The device's part of an action begins here; repeating it forgets the earlier one.
  void StartCompute();
  // It ends here. `span`: all but its times. REQUIRES: StartCompute before.
  void EndCompute(const Span& span, StageMeter& meter);
  // A span of the host's clock.
  void Add(const Span& span, StageMeter& meter);
  // A copy is asked for between these two. No copies inside one another.
  void StartCopy(CopyDirection direction);
  void EndCopy(CopyDirection direction, StageMeter& meter);
  // The end of an action. Passes on what the device has done.
  void End(const Action& action, StageMeter& meter);

  // Waits for the device and passes on all that it computed. Errors: as Prepare.
  absl::Status Finish();

  // Names the action for profilers, until EndRange.
  void BeginRange(const Action& action);
  void EndRange();

  // Spans left out because the ring was full: none, unless one action has hundreds.
  int64_t dropped() const { return dropped_; }

 private:
  enum class Kind : uint8_t { kCompute, kHost, kCopyToDevice, kCopyToHost, kEnd };

  struct Entry {
    Kind kind = Kind::kHost;
    int anchor = 0;  // that its marks are counted from
    int start = 0, end = 0;
    Span span;
    StageMeter* meter = nullptr;
  };

  // A mark that the device has passed, and the host's time then.
  struct Anchor {
    int mark = 0;
    int64_t host_ns = 0;
  };

  int64_t waiting() const { return added_ - passed_on_; }
  int TakeMark() { return static_cast<int>(marks_taken_++ % (kMarks - 2)); }
  void Push(const Entry& entry);
  void PassOn();
  void PassOn(const Entry& entry);
  absl::Status WaitForDevice();
  absl::Status RenewAnchor();
  int64_t HostNs(int anchor, int mark);

  Clock& clock_;
  const std::function<absl::Status()> synchronize_;
  const std::unique_ptr<DeviceMarks> marks_;
  SpanSink sink_;

  std::vector<Entry> entries_;  // a ring
  int64_t added_ = 0;
  int64_t passed_on_ = 0;
  int64_t dropped_ = 0;
  int64_t marks_taken_ = 0;
  int compute_start_ = -1;  // the mark of StartCompute, or -1
  int copy_start_ = -1;
  bool in_range_ = false;

  std::array<Anchor, 2>
      anchors_;  // the current one, and one that entries may still be counted from
  int anchor_ = 0;
  bool anchored_ = false;
  int64_t compute_end_ns_ = 0;       // of the last compute span, on the host's clock
  int64_t copy_to_host_end_ns_ = 0;  // of the last copy to the host
};

}  // namespace penstock
