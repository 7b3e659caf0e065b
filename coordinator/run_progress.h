// RunProgress: what a run has shown for itself so far, put together from the workers' reports.
//
// A job that goes on from a checkpoint does the steps after it again. The curves are those of the run that goes on: points
// of steps that are done again leave them. Steps and work count once: they stand still until the run has come as far
// as before.
//
// A state machine without I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "job/early_stop.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

// Returns the part of its time in which each worker computes for none of its stages, in the order of their first
// stages.
std::vector<double> BubblesByWorker(
    const google::protobuf::RepeatedPtrField<v1::StageReport>& stages);

class RunProgress {
 public:
  // A curve keeps at most this many points and the last one; beyond that every second one is dropped, and so on. Two
  // curves of this length fit into one control message.
  static constexpr int kLossPointsMax = 8192;
  // The last steps that train_loss is the mean of.
  static constexpr size_t kTrainLossSteps = 10;

  // `reporting_stage`: the one whose worker reports the steps.
  RunProgress(int64_t first_step, int32_t reporting_stage)
      : step_(first_step), told_step_(first_step), reporting_stage_(reporting_stage) {}

  // The job goes on after `first_step`, with which the microbatch `first_microbatch` comes next, on other workers, whose
  // reports are of what comes from now on.
  void BeginAgain(int64_t first_step, int64_t first_microbatch, int32_t reporting_stage);

  // The job was at `before` in an earlier process and goes on after its first step here: takes over the curves and the
  // work up to there. REQUIRES: nothing was reported yet.
  void GoOnFrom(const v1::JobResult& before);

  // Another process goes on with the run under way, which is where it was at `before`. REQUIRES: nothing was reported yet.
  void TakeOver(const v1::JobResult& before, const v1::RunUnderWay& run);

  int32_t reporting_stage() const { return reporting_stage_; }

  // `unix_ms`: of now. Returns false, and nothing changes, if the step is not later than the last one.
  bool OnStep(const v1::StepDone& done, int64_t unix_ms);
  // Returns whether it is the first one of its step. Nothing changes if it is not later than the last one of the run.
  bool OnValidation(const v1::ValidationDone& done);
  // The loss of the validation at `step`, if there was one; of thousands of them not each is remembered.
  std::optional<double> ValidationAt(int64_t step) const;
  // The course of the validations up to `step`, likewise.
  EarlyStop::Course CourseUpTo(int64_t step) const;
  void OnReports(const google::protobuf::RepeatedPtrField<v1::StageReport>& stages);
  // Takes the order of a range that ended on a worker (pipeline.order "recorded").
  void OnOrder(int32_t worker_index, const v1::WorkerOrder& order);
  void OnLayers(const google::protobuf::RepeatedPtrField<v1::LayerDigest>& layers);

  // The job ends here, perhaps before it has come as far as an attempt before: no more than this counts.
  void EndHere();

  int64_t step() const { return step_; }
  // Returns the last step that was ever done: at least step().
  int64_t told_step() const { return told_step_; }
  // Returns weights_sha256, once all `layers` digests are there; else empty.
  std::string WeightsSha256(int32_t layers) const;

  // Returns the latest report of each stage, in their order.
  google::protobuf::RepeatedPtrField<v1::StageReport> Reports() const;
  // Writes what is known into `result`; leaves the rest of it.
  void WriteTo(v1::JobResult& result) const;
  // Writes what TakeOver needs beside the result.
  void WriteTo(v1::RunUnderWay& run) const;

 private:
  // A curve that thins itself out.
  struct Curve {
    void Add(v1::LossPoint point);
    void DropAfter(int64_t step);
    // The points and, whatever is thinned out, the last one.
    void WriteTo(google::protobuf::RepeatedPtrField<v1::LossPoint>& curve) const;
    std::vector<v1::LossPoint> points;
    v1::LossPoint last;
    int64_t stride = 1;  // one point is kept of this many
    int64_t skipped = 0;
  };

  // What was trained on.
  struct Work {
    int64_t samples = 0;
    int64_t tokens = 0;
  };

  // Takes the last losses from the curve, if it has all of them.
  void TakeRecentLosses();

  int64_t step_;
  int64_t told_step_;
  int64_t told_validation_ = -1;  // the last step that was validated
  int32_t reporting_stage_;
  Work work_;          // up to told_step_
  Work work_of_step_;  // the last: all have as much
  Work work_here_;     // on the workers that it has now
  // These cover the range of steps of the last stage's last report. That stage's worker is the one that reports the
  // steps, and in order, so these are the same steps.
  Work window_work_;
  double window_seconds_ = 0.0;
  std::deque<double> recent_losses_;
  Curve losses_;
  Curve validations_;
  std::optional<v1::LossPoint> validation_;                        // the last
  std::map<int32_t, v1::StageReport> stages_;                      // the latest, by stage
  std::map<int32_t, std::string> layer_digests_;                   // by layer of the model
  std::map<std::pair<int64_t, int32_t>, v1::WorkerOrder> orders_;  // by first microbatch, worker
};

}  // namespace penstock
