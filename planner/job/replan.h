// Replan: other layers for the stages of a run, by what its workers measured.
//
// How fast each worker really is follows from the time of its passes, held against the times that the job was planned
// with (JobSpec.prediction.times): its speed is the one at which they would be as measured. By these speeds the layers
// are cut again, and the simulator compares both splits. Workers, their order and all else about the pipeline stay as
// they are.
//
// A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

// A split that saves less of a step than this part of it is not worth a drain.
inline constexpr double kReplanGainMin = 0.05;

struct NewSplit {
  std::vector<int32_t> stage_layers;
  double step_s_before = 0;       // of the split there is, on the measured speeds
  v1::PredictionSpec prediction;  // of the job with the new one
};

// Returns `reports` with the median of each kind of pass as its mean since `before`, the reports of an earlier cut:
// medians look further back than a worker may have been slow. Kinds of pass that were not done since stay as they are.
google::protobuf::RepeatedPtrField<v1::StageReport> TimesSince(
    const google::protobuf::RepeatedPtrField<v1::StageReport>& before,
    google::protobuf::RepeatedPtrField<v1::StageReport> reports);

// `reports`: of all stages of `plan`, at a cut. `memory_bytes`: of each worker's device, 0 where it is not known.
// Errors: FailedPrecondition saying why there is no better split: no times to correct, a worker that measured nothing,
// the same layers, too small a gain, or a worker whose memory the layers might not fit into.
absl::StatusOr<NewSplit> PlanAnew(
    const v1::JobSpec& spec, const ResolvedJob& job, const v1::Plan& plan,
    const google::protobuf::RepeatedPtrField<v1::StageReport>& reports,
    absl::Span<const int64_t> memory_bytes);

}  // namespace penstock
