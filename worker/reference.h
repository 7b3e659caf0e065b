// The serial reference: the same training in one process, one microbatch at a time, without any
// schedule code. It is the standard: on the CPU a cluster must give its bits, whatever the timing.
//
//   methods that drain    plain minibatch training: for each step forward and backward of its
//   at every step         microbatches in order, then one update; the whole model is one stage
//   local-sgd             R whole models; microbatch m trains model m mod R with an update of its own. At the
//                         end of a step all take the mean
//   replicas of stages    the microbatches that replica i of a stage with r of them has, i, i + r, i + 2r, .., are
//                         added up by themselves in the stage's own accumulator i; at an update the sums are
//                         added in the order of the replicas (and, with an update for each microbatch of each
//                         replica, divided by r). Each keeps statistics of its own (model/op.h), which become their
//                         mean at the end of a range
//   compressed messages   (pipeline.compress) a method that drains has its stages, too, and each tensor goes from stage to
//                         stage through a message where these are on different workers
//   continuous methods    stage s of S (from 0) keeps its own versions. Between two cuts, microbatch k,
//                         counted from the cut, reads the version that follows from k, s and the weights
//                         in closed form (version_rule.h). A stage with r replicas updates once in r
//                         microbatches, or once in a step. With rpd, k and s decide the samples: an older
//                         version, and whether the update is left out
//
// In recorded order (pipeline.order) the run's log says what each microbatch read (order_replay.h).
//
// Cuts, clipping, rates, dropout and validation are those of the job.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "compute/backend.h"
#include "model/graph.h"
#include "penstock/v1/job.pb.h"
#include "schedule/machine.h"
#include "schedule/recorded_order.h"
#include "worker/evaluation.h"
#include "worker/limits.h"
#include "worker/update_rule.h"

namespace penstock {

struct ReferenceOptions {
  v1::JobSpec spec;  // complete, defaults filled in
  // Layers of each stage (of one pipeline); only asynchronous methods, stage replicas and compressed messages depend on them.
  std::vector<LayerRange> stages;
  std::vector<int64_t> extra_cuts;
  // The log of a job in recorded order, from its first microbatch on; only such jobs have one.
  std::optional<RecordedOrder> recorded = std::nullopt;
  std::string data_root;
  RunLimits limits;
  // Called after each step; may be empty.
  std::function<void(const StepResult&)> on_step;
  // Called after the forward of each microbatch with its loss, in their order; training ends with the error
  // that it returns. May be empty.
  std::function<absl::Status(int64_t microbatch, double loss)> on_microbatch;
};

struct ReferenceResult {
  struct Validation {
    int64_t step = 0;
    Evaluation evaluation;
    friend bool operator==(const Validation&, const Validation&) = default;
  };
  // Counts how many updates lay between the versions that were read.
  struct StageReads {
    StalenessCount staleness;      // version replaced by the update minus version the forward read
    StalenessCount version_drift;  // version backward read minus version forward read
  };
  std::vector<StepResult> steps;
  std::vector<Validation> validations;
  // By stage, those of all its replicas together; of a method that drains and has no replicas of stages and no compressed
  // messages, by replica of the whole model.
  std::vector<StageReads> reads;
  std::vector<std::string> layer_sha256;  // by layer of the model, as it was described
  std::string weights_sha256;
};

// Trains the job from its initial weights to its end.
// Errors: InvalidArgument (job, stages or recorded order), those of DataSource, FailedPrecondition (the loss is
// not finite, or with clipping a gradient), that of on_microbatch.
absl::StatusOr<ReferenceResult> TrainReference(const ReferenceOptions& options, Files& files,
                                               Backend& backend);

}  // namespace penstock
