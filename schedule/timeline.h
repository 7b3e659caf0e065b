// Timeline: what happened on every worker, or is predicted to happen.
//
// The simulator predicts one, the worker measures one; the same code compares, counts and draws
// both (render_text.h, render_svg.h, render_trace.h).
//
// Plain values; the clock is that of the code that fills them in.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "schedule/action.h"

namespace penstock {

// The subject of a span. The lanes of one worker's thread (compute, collective, send, receive, wait)
// never overlap; transfers and copies run beside them.
enum class Lane : uint8_t {
  kCompute,     // F, R, I, W, UPDATE: busy
  kCollective,  // REDUCE, NORM: the exchange itself, once all members are there
  kSend,        // handing a message over
  kReceive,     // taking a message that is there
  kWait,        // nothing to do yet; `wait` says why
  kTransfer,    // a message on its way, from its send on
  kOffload,     // a stash on its way to the host, or weights and state to their file
  kPrefetch,    // a stash on its way back to the device, or weights and state from their file
};
inline constexpr int kLanes = 8;
// True for the lanes of what runs beside the worker's thread.
constexpr bool RunsBeside(Lane lane) { return lane >= Lane::kTransfer; }

// Why a worker waits.
enum class Wait : uint8_t {
  kNone,        // it does not
  kInput,       // RECV: the message has not come
  kCredit,      // SEND: the channel is full
  kCollective,  // REDUCE, NORM: another member has not come
  kData,        // the samples of the microbatch are not read yet
  kHost,  // a stash is still on its way to or from the host, or weights and state to or from their file
};
inline constexpr int kWaits = 6;

// "compute", "wait", ...; "input", "credit", ...
absl::string_view LaneName(Lane lane);
absl::string_view WaitName(Wait wait);

struct Span {
  WorkerId worker;
  Lane lane = Lane::kCompute;
  Wait wait = Wait::kNone;  // not kNone exactly on kWait
  Action action{ActionKind::kFlush};
  int64_t start_ns = 0;
  int64_t end_ns = 0;

  int64_t duration_ns() const { return end_ns - start_ns; }
  friend bool operator==(const Span&, const Span&) = default;
};

struct Timeline {
  int32_t workers = 0;
  std::vector<Span> spans;  // in any order

  // The window from the first start to the last end; both 0 without spans.
  int64_t start_ns() const;
  int64_t end_ns() const;
};

// For timelines that come from outside; afterwards no difference of times and no sum of durations
// overflows. Errors: InvalidArgument if a span's worker, lane, cause, operation, stage or microbatch
// cannot exist, it ends before it starts, or its times are beyond kTimelineNsMax.
absl::Status CheckTimeline(const Timeline& timeline);

// About 146 years from the origin of the clock, and for all spans together.
inline constexpr int64_t kTimelineNsMax = int64_t{1} << 62;

// Where one worker's time went. Fed span by span, so that a long run need not be kept.
class TimeShares {
 public:
  void Add(const Span& span) {
    if (span.lane == Lane::kWait) {
      waiting_ns_[static_cast<int>(span.wait)] += span.duration_ns();
    } else {
      lane_ns_[static_cast<int>(span.lane)] += span.duration_ns();
    }
  }

  int64_t busy_ns() const { return lane_ns_[static_cast<int>(Lane::kCompute)]; }
  int64_t lane_ns(Lane lane) const { return lane_ns_[static_cast<int>(lane)]; }
  int64_t waiting_ns(Wait cause) const { return waiting_ns_[static_cast<int>(cause)]; }
  int64_t waiting_ns() const;

 private:
  std::array<int64_t, kLanes> lane_ns_{};
  std::array<int64_t, kWaits> waiting_ns_{};
};

// By worker.
std::vector<TimeShares> SharesOf(const Timeline& timeline);

}  // namespace penstock
