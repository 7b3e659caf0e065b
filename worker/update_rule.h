// The parts of an update, which the executor and the serial reference share.
//
// An update of a stage takes the gradients of consecutive microbatches [first, end). It uses the mean
// over their valid targets (worker/valid_targets.h), and the rate for the number of samples that the job has seen once this update is
// made: end * microbatch size. So the first update of a warm-up is not wasted, the last update has the
// final rate, and methods with more updates per step follow the same curve.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compute/stage.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "schedule/schedule.h"

namespace penstock {

// A step that the last stage has made its update for.
struct StepResult {
  int64_t step = 0;   // steps done
  double loss = 0.0;  // mean over its valid targets, as the forwards of its microbatches saw them
  double learning_rate = 0.0;
  double gradient_norm = 0.0;  // before clipping by it; 0 if there is no such clipping
};

// Global index of the first sample of a microbatch.
int64_t FirstSample(const ResolvedJob& job, int64_t microbatch);

// The microbatches of step `step`, counted from 1.
inline MicrobatchRange RangeOfStep(const ResolvedJob& job, int64_t step) {
  return {.first = (step - 1) * job.microbatches, .count = job.microbatches};
}

double RateOfUpdate(const ResolvedJob& job, MicrobatchRange microbatches);
// On a stage with this lateness: rescheduled (Yang et al., MLSys 2021, arXiv 1910.05124, T1), which divides the
// rate by max(1, t)^(1 - min(k / K, 1)), k steps after the method began, with t = lateness.rate_delay.
double RateOfUpdate(const ResolvedJob& job, const StageLateness& lateness,
                    MicrobatchRange microbatches);

// Returns the part of the weights' average that an update keeps which takes this many microbatches of a step, in each of
// `pipelines` replicas of the model: decay^(their share of the step), so that every method averages over as many steps.
double AverageKept(const ResolvedJob& job, int64_t microbatches, int64_t pipelines);

// Returns the factor that makes a mean of the sum of this many replicas' gradients.
inline float MeanFactor(int64_t replicas) { return 1.0f / static_cast<float>(replicas); }

// Returns whether an update that makes `version` from gradients taken at `read_version` is compensated for
// the delay (the adaptive form notes the gradients of all updates), and whether the error of the update before it is fed
// back.
bool CompensatesDelay(const ResolvedJob& job, int64_t version, int64_t read_version);
bool FeedsBack(const ResolvedJob& job, int64_t version, int64_t read_version);

// The layers before `layers` to which parameters of these belong, ascending: their copies of them are clipped by the
// norms of those.
std::vector<int> OwnersBefore(const ModelGraph& model, LayerRange layers);

// Errors: FailedPrecondition naming step, layer and stage if a squared norm is not finite.
absl::Status CheckNorms(const ModelGraph& model, LayerRange layers, absl::Span<const double> norms,
                        int64_t step, int32_t stage);
// Errors: FailedPrecondition naming step and stage if `loss` is not finite.
absl::Status CheckLoss(double loss, int64_t step, int32_t stage);
// The error of a stage that has to compress a tensor with a number that is not finite: FailedPrecondition.
absl::Status MessageNotFinite(int64_t step, int32_t stage);

}  // namespace penstock
