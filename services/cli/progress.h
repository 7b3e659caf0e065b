// Progress: what is known of a running job, gathered from its events, and how it reads as one line.
//
// Thread-compatible; performs no I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/remaining_time.h"
#include "penstock/v1/cluster.pb.h"
#include "services/documents/work_done.h"

namespace penstock {

class Progress {
 public:
  // Counts work whose parts run side by side, so that they end in bursts. `unit`: what is counted, for people.
  explicit Progress(int64_t steps, std::string unit = "step")
      : steps_(steps), unit_(std::move(unit)) {}
  // Counts the steps of a job that drains after the steps in `cuts`.
  Progress(int64_t steps, absl::Span<const int64_t> cuts)
      : steps_(steps), unit_("step"), remaining_(RemainingTime(steps, cuts)) {}

  // Takes an event. Returns a note for a line of its own (a validation, a checkpoint, a log line), or
  // nothing.
  std::string Add(const v1::JobEvent& event);
  // The stages' reports so far, for their bubbles.
  void SetStages(const v1::JobResult& result);

  int64_t step() const { return step_; }
  int64_t steps() const { return steps_; }
  // In the unit of services/documents/work_done.h, over the last seconds; 0 before the second step.
  double work_per_second() const;
  // Seconds to the end, as the coordinator counts them, else at the speed so far; none before the second
  // step.
  std::optional<double> remaining_seconds() const;

  // "step 120/400 [=======>      ]  loss 2.341  validation 2.402  12.3 k tokens/s  bubble 8 | 12 %
  // 1m 20s left", at most `columns` wide: what does not fit is left out from the right.
  std::string Line(int columns) const;
  // Returns the line without a bar, for files.
  std::string PlainLine() const;

 private:
  struct Mark {
    int64_t monotonic_ns;  // on the worker's clock
    int64_t work;          // since the start
  };
  std::vector<std::string> Facts() const;

  int64_t steps_;
  std::string unit_;
  int64_t step_ = 0;
  int64_t first_step_ = 0;  // of those this run makes
  int64_t first_ns_ = 0;
  std::optional<RemainingTime> remaining_;  // of a job
  WorkDone work_;
  double loss_ = 0;
  std::optional<v1::ValidationDone> validation_;  // the last
  v1::JobState state_ = v1::JOB_STATE_QUEUED;
  std::string reason_;  // why it waits
  std::deque<Mark> recent_;
  std::vector<double> bubbles_;  // by worker
};

}  // namespace penstock
