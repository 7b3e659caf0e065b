// ReportCheck: whether what a worker reports of its run can be true, before anything of it is kept.
//
// A worker may be broken, or somebody else's. It tells of its own stages, of the model's layers, and of cuts that the run
// has, each once; so whatever it sends, a job keeps no more than its plan has room for. Numbers that are added up are
// bounded, so that no sum of them overflows.
//
// Pure functions. Errors: InvalidArgument, saying what was reported and what the run has.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "coordinator/training_job.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

// What an event may have beside its stages and layers: texts, links, metrics.
inline constexpr int64_t kEventBytesMax = 64 << 10;
inline constexpr int kMetricsMax = 16;
inline constexpr size_t kMetricNameBytesMax = 64;

// Checks the size of an event of any kind of job. `layers`: of the model.
absl::Status CheckEventSize(const v1::RunEvent& event, int64_t layers);

// Checks the reports of the stages of the worker with this index in the attempt's plan.
absl::Status CheckStages(const StageReports& stages, const TrainingAttempt& attempt,
                         int32_t worker_index);

// Checks an event of that worker.
absl::Status CheckTrainingEvent(const v1::RunEvent& event, const TrainingAttempt& attempt,
                                int32_t worker_index);

}  // namespace penstock
