// Prediction: what a job was planned to take, and whether what it says is of this job.
//
// Nothing that a job computes depends on it, so neither the digest of a run (agreement.h) nor a checkpoint's fingerprint
// has any of it: a job goes on from a checkpoint whatever was predicted.
//
// Pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// Digests the keys that change a run's costs: all but the name, the first weights, the data, how long it trains, with which seed and rate,
// and what happens at cuts. REQUIRES: defaults are filled in.
std::string PredictedJobSha256(const v1::JobSpec& spec);

// Removes the prediction if the method, the split or the model has changed since. Returns whether there was one.
// REQUIRES: defaults are filled in.
bool DropOtherPrediction(v1::JobSpec& spec);

// Keeps what a prediction needs of the times that a step was simulated on: the link that most pairs of workers have
// stands once, without their numbers; and nothing at all if that is still too much for a job's message.
void SetPredictedTimes(const v1::DeviceTimes& times, v1::PredictionSpec& prediction);

// REQUIRES: `job` is `spec`, resolved but for this.
// Errors: InvalidArgument naming the key: a prediction without pipeline.stages; a number that is negative or not finite,
// or not one for each worker; times that CheckDeviceTimes refuses, not by layer, or of another model.
absl::Status CheckPrediction(const v1::JobSpec& spec, const ResolvedJob& job);

// Errors: InvalidArgument naming the key: a bound or number of steps out of range; a word that is neither; "auto" for a
// job whose result another split would change (late gradients, recorded order, unlike replicas), or without checkpoints
// to go on from.
absl::Status CheckFeedback(const v1::JobSpec& spec, const ResolvedJob& job);

}  // namespace penstock
