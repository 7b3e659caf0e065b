// The parts of ResolveJob (resolve.h) that read how a job places its stages: its own schedule, replicas, workers and
// recomputation.
//
// Pure functions. Errors: InvalidArgument naming the key, what it is and what would do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"
#include "schedule/offload.h"
#include "schedule/recompute.h"
#include "schedule/schedule.h"

namespace penstock {

// Reads and verifies the step that a job brings along: a custom schedule, or the order that was searched for it.
absl::StatusOr<std::shared_ptr<const Schedule>> ReadListed(const v1::PipelineSpec& pipeline,
                                                           const Method& method);

// The stages on each worker: what the job says, or the method's fewest. Of a searched order those that it has, which the job
// may name; a custom schedule says itself where each stage is, so the job may not. REQUIRES: method and custom schedule
// are found.
absl::StatusOr<int32_t> StagesPerWorkerOf(const v1::PipelineSpec& pipeline, const ResolvedJob& job);

// The stages that are passed together on the way there.
absl::StatusOr<int32_t> StagesPerForwardOf(const v1::PipelineSpec& pipeline, const Method& method);

// The workers that the stages go round; absent where the job does not say so.
absl::StatusOr<std::optional<int32_t>> WorkersOfJob(const v1::PipelineSpec& pipeline,
                                                    const Method& method);

// The microbatches of an update, where the job says it; absent: the method's own. REQUIRES: method and microbatches are
// found.
absl::StatusOr<std::optional<int64_t>> UpdateEveryOf(const v1::PipelineSpec& pipeline,
                                                     const ResolvedJob& job);

// The next three read what ResolveJob has found before them: method, custom schedule, microbatches, model.

// The replicas of the model that the job asks for, directly or by the local steps that a step has room for.
absl::StatusOr<std::optional<int32_t>> ReplicasOf(const v1::PipelineSpec& pipeline,
                                                  const ResolvedJob& job);
// The replicas of each stage that the job asks for, checked as far as the number of stages does not matter.
absl::StatusOr<std::vector<int32_t>> StageReplicasOf(const v1::PipelineSpec& pipeline,
                                                     const ResolvedJob& job);
// The stages that recompute. A schedule file's own choice holds unless the job says more.
absl::StatusOr<RecomputeChoice> RecomputeOf(const v1::PipelineSpec& pipeline,
                                            const ResolvedJob& job);

// Whether weights are streamed; the word for those that live in files. Errors: InvalidArgument naming the key.
inline constexpr char kStreamsFromFile[] = "file";
absl::StatusOr<bool> StreamsWeightsOf(const v1::PipelineSpec& pipeline, const ResolvedJob& job);
// The stages that offload. Errors: InvalidArgument naming the key.
absl::StatusOr<OffloadChoice> OffloadOf(const v1::PipelineSpec& pipeline, const ResolvedJob& job);
// How messages are compressed. Errors: InvalidArgument naming the key.
absl::StatusOr<MessageCompression> CompressionOf(const v1::PipelineSpec& pipeline,
                                                 const ResolvedJob& job);

// The fewest stages that the job can be checked with: those that it lists or names in pipeline.recompute; else those of
// one worker. In resolve_stages.cc.
int64_t FewestStages(const ResolvedJob& job);

}  // namespace penstock
