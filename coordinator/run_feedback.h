// RunFeedback: what a run measures, held against what was predicted of it (JobSpec.prediction).
//
// The time of a step comes from the worker that tells of steps, with each of them; memory and what is sent come with
// the stages' reports, at cuts.
//
// A state machine without clock or I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/drift.h"
#include "coordinator/step_times.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

class RunFeedback {
 public:
  // The news that a step may bring.
  struct News {
    Drift::Turn turn = Drift::Turn::kNone;
    std::string text;  // for people; empty: nothing to tell
  };

  // A run begins, or begins again under another plan: then what was reported stays counted. `spec` is complete.
  void Begin(const v1::JobSpec& spec, const v1::Plan& plan, int64_t first_step,
             absl::Span<const int64_t> extra_cuts);

  // The job was in an earlier process, which has told as often as `before` says.
  void GoOnFrom(const v1::Feedback& before) { told_ = before.drifts_told(); }

  News OnStep(const v1::StepDone& done);
  // Reports of a worker's stages after `step`. Returns what to tell of memory.
  std::vector<std::string> OnReports(
      int64_t step, const google::protobuf::RepeatedPtrField<v1::StageReport>& stages);

  // All but `replans`. REQUIRES: Begin was called.
  void WriteTo(v1::Feedback& feedback) const;

 private:
  struct Use {
    std::string worker;
    std::optional<int64_t> memory_bytes;
    std::optional<double> sent_bytes_per_step;
    bool memory_is_off = false;
  };

  std::string TextOf(Drift::Turn turn, double measured_s) const;

  v1::PredictionSpec prediction_;
  v1::FeedbackSpec rules_;
  int64_t first_step_ = 0;
  std::vector<int32_t> worker_of_stage_;
  std::vector<Use> workers_;
  std::optional<StepTimes> times_;
  std::optional<Drift> drift_;  // absent: nothing was predicted
  int64_t told_ = 0;
};

}  // namespace penstock
