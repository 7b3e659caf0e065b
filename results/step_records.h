// StepRecords: a record of each step of a job, made of the job's events (WatchJob).
//
// A step has one record, of the attempt that was the first to do it: what is done again after a failure is not told again.
// The record of a step with a validation is complete once that is known, and those of later steps come after it.
//
// Plain values and a state machine without I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;  // 0 where the method has none
  int64_t samples = 0;
  int64_t tokens = 0;  // 0: its model has none
  // Since the step before, with what was done between them: the validation and the snapshot of a cut. Nothing of the first
  // step that an attempt tells of.
  std::optional<double> seconds;
  std::optional<double> validation_loss;
  std::vector<v1::MetricValue> validation_metrics;
  int64_t attempt = 0;  // counts from 1
  int64_t unix_ms = 0;  // when the coordinator heard of it

  // Nothing where the time is not known, and of tokens where there are none.
  std::optional<double> samples_per_second() const { return PerSecond(samples); }
  std::optional<double> tokens_per_second() const { return PerSecond(tokens); }

 private:
  std::optional<double> PerSecond(int64_t count) const {
    if (count == 0 || !seconds.has_value() || *seconds <= 0) return std::nullopt;
    return static_cast<double>(count) / *seconds;
  }
};

class StepRecords {
 public:
  // Steps that wait for a validation at most. Beyond that the first is complete without it.
  static constexpr size_t kWaitingMax = 1024;

  explicit StepRecords(const v1::JobSpec& spec)
      : steps_(spec.training().steps()), validate_every_(spec.validation().every_steps()) {}

  // Takes the job's next event. Returns the records that are complete now, by step.
  std::vector<StepRecord> Add(const v1::JobEvent& event);
  int64_t last_sequence() const { return last_sequence_; }
  bool ended() const { return ended_; }

 private:
  struct Waiting {
    StepRecord record;
    bool validated = true;  // or is not to be
  };

  void OnStep(const v1::JobEvent& event);
  void OnValidation(const v1::ValidationDone& done);

  const int64_t steps_;
  const int64_t validate_every_;
  int64_t last_sequence_ = 0;
  int64_t attempt_ = 0;
  std::optional<v1::StepDone> before_;  // the last of this attempt
  std::deque<Waiting> waiting_;
  bool ended_ = false;
};

}  // namespace penstock
