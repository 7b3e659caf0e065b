#include "job/resolve_pipeline.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/keys/key_options.h"
#include "job/keys/limits.h"
#include "schedule/lower.h"
#include "schedule/text.h"
#include "schedule/verify.h"

namespace penstock {
namespace {

// "4 or 8": what divides `number` and is nearest to `divisor`, which does not.
std::string NearestDivisors(int64_t number, int64_t divisor) {
  int64_t below = std::min(divisor, number);
  while (number % below != 0) --below;
  if (divisor > number) return absl::StrCat(below);
  int64_t above = divisor;
  while (number % above != 0) ++above;
  return absl::StrCat(below, " or ", above);
}

absl::Status CheckDivides(absl::string_view key, int64_t value, int64_t microbatches) {
  if (microbatches % value == 0) return absl::OkStatus();
  return InvalidKey(
      key, absl::StrCat("is ", value, ", which does not divide training.microbatches (",
                        microbatches, "); ", NearestDivisors(microbatches, value), " would do"));
}

// The replicas of a job that has the order of its steps. A job for which it was searched may still name them (`said`).
absl::StatusOr<std::vector<int32_t>> ReplicasOfListed(std::vector<int32_t> said,
                                                      const ResolvedJob& job) {
  const Topology& topology = job.listed->topology;
  std::vector<int32_t> listed = ReplicasOf(topology);
  if (said.size() == 1) said.resize(listed.size(), said.front());
  if (!said.empty() && said != listed) {
    return InvalidKey("pipeline.replicas",
                      absl::StrCat("is ", absl::StrJoin(said, ","),
                                   ", but the order of a step that the job has is for ",
                                   absl::StrJoin(listed, ","),
                                   " replicas; use these numbers, or leave out the order (",
                                   "pipeline.schedule_file or pipeline.schedule), so that another "
                                   "one is searched"));
  }
  return topology.form == Topology::Form::kReplicas ? std::move(listed) : std::vector<int32_t>();
}

absl::Status RefuseBesideFile(absl::string_view key) {
  return InvalidKey(key,
                    "cannot be together with pipeline.schedule_file, which says where each stage "
                    "is; leave one of them out");
}

// Whether the forwards of each stage, its backwards, and what it sends come in the order of the microbatches.
bool KeepsMicrobatchesInOrder(const Schedule& schedule) {
  std::map<std::pair<ActionKind, int32_t>, int64_t> last;
  for (const Program& program : schedule.programs) {
    for (ProgramCursor cursor(program); !cursor.Done(); cursor.Advance()) {
      const Action action = cursor.Current();
      if (!IsSend(action.kind) && action.kind != ActionKind::kForward &&
          action.kind != ActionKind::kBackwardInput) {
        continue;
      }
      const auto [before, is_first] =
          last.try_emplace({action.kind, action.index}, action.microbatch);
      if (!is_first && before->second >= action.microbatch) return false;
      before->second = action.microbatch;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Schedule>> ReadListed(const v1::PipelineSpec& pipeline,
                                                           const Method& method) {
  if (pipeline.method() != method.name) {
    return InvalidKey("pipeline.schedule_file",
                      absl::StrCat("cannot be together with pipeline.method ", pipeline.method(),
                                   "; leave one of them out"));
  }
  if (pipeline.schedule_file().empty() && pipeline.schedule().empty()) {
    return InvalidKey("pipeline.method",
                      absl::StrCat("is ", method.name,
                                   ", but no order is found yet; `penstock train` and `penstock "
                                   "submit` find one for their workers"));
  }
  const absl::StatusOr<Schedule> schedule = ParseSchedule(pipeline.schedule());
  if (!schedule.ok()) return InvalidKey("pipeline.schedule_file", schedule.status().message());
  const absl::Status topology = CheckTopology(schedule->topology);
  if (!topology.ok()) return InvalidKey("pipeline.schedule_file", topology.message());
  if (!(schedule->weight_policy == kSingleVersion) ||
      schedule->completeness != Completeness::kTrain) {
    return InvalidKey("pipeline.schedule_file",
                      "must list a training step with a single version of the weights");
  }
  const bool loops = schedule->topology.form == Topology::Form::kThereAndBack;
  if (loops && &method == &SearchedMethod()) {
    return InvalidKey("pipeline.schedule_file",
                      absl::StrCat("has pipelines that go there and back, which ", method.name,
                                   " does not search; leave out pipeline.method"));
  }
  if (schedule->topology.pipelines > 1 && !loops) {
    return InvalidKey("pipeline.schedule_file",
                      absl::StrCat("has ", schedule->topology.pipelines,
                                   " pipelines, but a custom schedule has one copy of the model; "
                                   "use pipeline.method local-sgd and pipeline.replicas"));
  }
  const absl::StatusOr<Schedule> complete =
      IsComplete(*schedule) ? schedule : CompleteSchedule(*schedule, {});
  if (!complete.ok()) return InvalidKey("pipeline.schedule_file", complete.status().message());
  const absl::StatusOr<VerifyReport> report = VerifyAndDraw(*complete);
  if (!report.ok()) return InvalidKey("pipeline.schedule_file", report.status().message());
  return std::make_shared<const Schedule>(*schedule);
}

absl::StatusOr<int32_t> StagesPerWorkerOf(const v1::PipelineSpec& pipeline,
                                          const ResolvedJob& job) {
  constexpr absl::string_view kKey = "pipeline.stages_per_worker";
  const bool says = pipeline.has_stages_per_worker();
  const int32_t said = pipeline.stages_per_worker();
  if (job.listed == nullptr) return says ? said : StagesPerWorkerMin(job.method->placement);
  if (job.method != &SearchedMethod()) {
    if (!says) return 1;
    return RefuseBesideFile(kKey);
  }
  const int32_t listed = job.listed->topology.stages() / job.listed->topology.workers;
  if (!says || said == listed) return listed;
  return InvalidKey(
      kKey, absl::StrCat("is ", said, ", but the order of a step that the job has is for ", listed,
                         " on each worker; use this number, or leave out the order "
                         "(pipeline.schedule_file or pipeline.schedule), so that "
                         "another one is searched"));
}

absl::StatusOr<std::optional<int32_t>> ReplicasOf(const v1::PipelineSpec& pipeline,
                                                  const ResolvedJob& job) {
  const bool has_replicas = pipeline.replicas_size() > 0;
  if (job.method->placement != Placement::kReplicas) {
    if (!pipeline.has_local_steps()) return std::nullopt;
    return InvalidKey("pipeline.local_steps",
                      absl::StrCat("is not for ", job.method->name,
                                   ", which trains one copy of the model; local-sgd has it"));
  }
  if (!has_replicas && !pipeline.has_local_steps()) return std::nullopt;
  const absl::string_view key = has_replicas ? "pipeline.replicas" : "pipeline.local_steps";
  if (pipeline.replicas_size() > 1) {
    return InvalidKey(
        key, absl::StrCat("has ", pipeline.replicas_size(), " numbers, but ", job.method->name,
                          " has replicas of the whole model; one number would do"));
  }
  if (!has_replicas) {
    PENSTOCK_RETURN_IF_ERROR(CheckDivides(key, pipeline.local_steps(), job.microbatches));
    const int64_t replicas = job.microbatches / pipeline.local_steps();
    const int64_t replicas_max = MaxOfJobKey("pipeline.replicas");
    if (replicas > replicas_max) {
      return InvalidKey(
          key, absl::StrCat("is ", pipeline.local_steps(), ", which makes ", replicas,
                            " replicas of ", job.microbatches, " training.microbatches; at most ",
                            replicas_max, " are possible"));
    }
    return static_cast<int32_t>(replicas);
  }
  const int32_t replicas = pipeline.replicas(0);
  PENSTOCK_RETURN_IF_ERROR(CheckDivides(key, replicas, job.microbatches));
  const int64_t local_steps = job.microbatches / replicas;
  if (pipeline.has_local_steps() && pipeline.local_steps() != local_steps) {
    return InvalidKey(
        "pipeline.local_steps",
        absl::StrCat("is ", pipeline.local_steps(), ", which takes ",
                     int64_t{pipeline.local_steps()} * replicas, " microbatches in a step with ",
                     replicas, " replicas, but training.microbatches is ", job.microbatches, "; ",
                     local_steps, " would do"));
  }
  return replicas;
}

absl::StatusOr<std::vector<int32_t>> StageReplicasOf(const v1::PipelineSpec& pipeline,
                                                     const ResolvedJob& job) {
  constexpr absl::string_view kKey = "pipeline.replicas";
  std::vector<int32_t> replicas(pipeline.replicas().begin(), pipeline.replicas().end());
  if (job.listed != nullptr && (replicas.empty() || job.method->replicates_stages())) {
    return ReplicasOfListed(std::move(replicas), job);
  }
  if (replicas.empty() || job.method->placement == Placement::kReplicas) {
    return std::vector<int32_t>();
  }
  if (!job.method->replicates_stages()) {
    return InvalidKey(kKey, absl::StrCat("is not for ", job.method->name, ", which ",
                                         job.method->why_no_replicas));
  }
  if (job.method->placement == Placement::kStraight && job.stages_per_worker > 1) {
    return InvalidKey(kKey,
                      "cannot be together with pipeline.stages_per_worker; every replica of a "
                      "stage is alone on its worker");
  }
  const auto workers = std::accumulate(replicas.begin(), replicas.end(), int64_t{0}) /
                       (replicas.size() > 1 ? job.stages_per_worker : 1);
  if (workers > kReplicatedWorkersMax) {
    return InvalidKey(kKey, absl::StrCat("takes ", workers, " workers; at most ",
                                         kReplicatedWorkersMax, " are possible"));
  }
  const int64_t cycle = CycleOf(replicas);
  if (job.microbatches % cycle != 0) {
    const int64_t below = job.microbatches / cycle * cycle;
    return InvalidKey(
        "training.microbatches",
        absl::StrCat("is ", job.microbatches, ", but with pipeline.replicas ",
                     absl::StrJoin(replicas, ","), " a step needs a multiple of ", cycle,
                     ", the least common multiple, so that all replicas do as much; ",
                     below > 0 ? absl::StrCat(below, " or ") : "", below + cycle, " would do"));
  }
  if (job.update_every.value_or(cycle) % cycle != 0) {
    return InvalidKey(
        "pipeline.update_every",
        absl::StrCat("is ", *job.update_every, ", but with pipeline.replicas ",
                     absl::StrJoin(replicas, ","), " an update needs a multiple of ", cycle,
                     ", the least common multiple, so that all replicas do as much; ", cycle,
                     " would do"));
  }
  return replicas;
}

absl::StatusOr<std::optional<int64_t>> UpdateEveryOf(const v1::PipelineSpec& pipeline,
                                                     const ResolvedJob& job) {
  constexpr absl::string_view kKey = "pipeline.update_every";
  if (!pipeline.has_update_every()) return std::nullopt;
  if (!job.method->chooses_update_interval) {
    return InvalidKey(
        kKey, absl::StrCat(
                  "is not for ", job.method->name, ", which updates a stage ",
                  job.method->updates_each_microbatch ? "after every microbatch" : "once in a step",
                  "; leave it out, or use paci"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckDivides(kKey, pipeline.update_every(), job.microbatches));
  return pipeline.update_every();
}

absl::StatusOr<std::optional<int32_t>> WorkersOfJob(const v1::PipelineSpec& pipeline,
                                                    const Method& method) {
  constexpr absl::string_view kKey = "pipeline.workers";
  if (!pipeline.has_workers()) return std::nullopt;
  if (method.placement == Placement::kListed) return RefuseBesideFile(kKey);
  if (method.placement != Placement::kRoundTrip) {
    return InvalidKey(kKey, absl::StrCat("is not for ", method.name,
                                         ", whose stages say how many workers it has; use "
                                         "pipeline.stages and pipeline.stages_per_worker"));
  }
  if (!pipeline.has_stages()) {
    return InvalidKey(kKey, "needs pipeline.stages, which go round these workers");
  }
  if (pipeline.has_stages_per_worker()) {
    return InvalidKey(kKey,
                      "cannot be together with pipeline.stages_per_worker, which says the same of "
                      "stages that are a multiple of the workers; leave one of them out");
  }
  return pipeline.workers();
}

absl::StatusOr<int32_t> StagesPerForwardOf(const v1::PipelineSpec& pipeline, const Method& method) {
  if (!pipeline.has_stages_per_forward()) return 1;
  if (method.placement == Placement::kListed) {
    return RefuseBesideFile("pipeline.stages_per_forward");
  }
  if (method.placement == Placement::kRoundTrip) return pipeline.stages_per_forward();
  return InvalidKey("pipeline.stages_per_forward",
                    absl::StrCat("is not for ", method.name,
                                 ", whose stages do their backwards where their forwards are; use "
                                 "roundpipe, or leave it out"));
}

absl::StatusOr<RecomputeChoice> RecomputeOf(const v1::PipelineSpec& pipeline,
                                            const ResolvedJob& job) {
  constexpr absl::string_view kKey = "pipeline.recompute";
  RecomputeChoice listed;
  if (job.listed != nullptr && !job.goes_there_and_back()) {
    const Topology& topology = job.listed->topology;
    for (const StageId stage : topology.Recomputing()) {
      const int32_t place = topology[stage].place;
      if (!listed.Has(place)) listed.places.push_back(place);
    }
  }
  if (pipeline.recompute().empty()) return listed;
  const absl::StatusOr<RecomputeChoice> choice = ParseRecompute(pipeline.recompute());
  if (!choice.ok()) return InvalidKey(kKey, choice.status().message());
  if (job.goes_there_and_back()) {
    if (choice->all) return RecomputeChoice();  // what it does by itself
    return InvalidKey(kKey, absl::StrCat("is no choice with ", job.method->name,
                                         ", whose backwards are on other workers than the forwards "
                                         "and do all but that of the last stage again; use all, or "
                                         "leave it out"));
  }
  for (const int32_t place : listed.places) {
    if (choice->Has(place)) continue;
    return InvalidKey(kKey, absl::StrCat("leaves out stage ", place,
                                         ", which recomputes in pipeline.schedule_file; name it "
                                         "too, or leave the key out"));
  }
  if (!choice->places.empty() && choice->places.back() >= job.model.size()) {
    return InvalidKey(
        kKey, absl::StrCat("names stage ", choice->places.back(), ", but the model has only ",
                           job.model.size(), " layers and every stage needs one; 0 to ",
                           job.model.size() - 1, " would do"));
  }
  return *choice;
}

absl::StatusOr<OffloadChoice> OffloadOf(const v1::PipelineSpec& pipeline, const ResolvedJob& job) {
  constexpr absl::string_view kKey = "pipeline.offload";
  if (pipeline.offload().empty()) return OffloadChoice();
  absl::StatusOr<OffloadChoice> choice = ParseOffload(pipeline.offload());
  if (!choice.ok()) return InvalidKey(kKey, choice.status().message());
  if (choice->none()) return choice;
  if (job.goes_there_and_back()) {
    return InvalidKey(kKey, absl::StrCat("is not for ", job.method->name,
                                         ", whose stages keep no stash from a forward to a later "
                                         "backward; leave it out"));
  }
  if (job.listed != nullptr && MovesStashes(*job.listed)) {
    return InvalidKey(kKey,
                      "is not for this pipeline.schedule_file, which says itself which stashes are "
                      "offloaded; leave the key out, or take OFFLOAD, EVICT and PREFETCH out of "
                      "the file");
  }
  if (pipeline.order() == "recorded") {
    return InvalidKey(kKey,
                      "cannot be together with pipeline.order recorded, where nobody knows which "
                      "stash is needed next; use the static order, or pipeline.recompute");
  }
  if (!choice->stages.empty() && choice->stages.back().place >= job.model.size()) {
    return InvalidKey(
        kKey, absl::StrCat("names stage ", choice->stages.back().place, ", but the model has only ",
                           job.model.size(), " layers and every stage needs one; 0 to ",
                           job.model.size() - 1, " would do"));
  }
  return choice;
}

absl::StatusOr<bool> StreamsWeightsOf(const v1::PipelineSpec& pipeline, const ResolvedJob& job) {
  constexpr absl::string_view kKey = "pipeline.stream_weights";
  const bool from_file = pipeline.stream_weights() == kStreamsFromFile;
  const bool says = from_file || pipeline.stream_weights() == "on";
  if (job.listed != nullptr && says) {
    return InvalidKey(kKey,
                      "cannot be together with pipeline.schedule_file, which says itself whether "
                      "weights are streamed; leave it out");
  }
  if (job.method->streams_weights && from_file) {
    return InvalidKey(
        kKey, absl::StrCat("cannot be file with ", job.method->name,
                           ", whose weights come from the memory of the worker that updates "
                           "them; leave it out, or use roundpipe"));
  }
  const bool listed_streams = job.listed != nullptr && job.listed->topology.streams_weights;
  if (!says && !job.method->streams_weights && !listed_streams) return false;
  if (!job.goes_there_and_back()) {
    return InvalidKey(kKey, absl::StrCat("is not for ", job.method->name,
                                         ", whose workers keep the stages that they pass; use "
                                         "roundpipe, or leave it out"));
  }
  const absl::string_view key = listed_streams ? "pipeline.schedule_file" : kKey;
  if (job.cuda_graphs) {
    return InvalidKey(key,
                      absl::StrCat(listed_streams ? "streams weights, which " : "",
                                   "cannot be together with training.cuda_graphs, which repeat "
                                   "passes with weights at the same addresses; leave one of "
                                   "them out"));
  }
  if (job.weights_in_file && job.average_decay.has_value()) {
    return InvalidKey(
        key, absl::StrCat(listed_streams ? "has stream=file, which cannot be" : "cannot be file",
                          " together with training.ema, whose average of the weights stays in "
                          "memory; use ",
                          listed_streams ? "stream=weights" : "on", ", or leave training.ema out"));
  }
  return true;
}

absl::StatusOr<MessageCompression> CompressionOf(const v1::PipelineSpec& pipeline,
                                                 const ResolvedJob& job) {
  constexpr absl::string_view kKey = "pipeline.compress";
  using Kind = MessageCompression::Kind;
  const bool keeps_few = pipeline.compress() == "topk";
  if (!keeps_few && pipeline.compress() != "int8") return MessageCompression();
  if (job.method->placement == Placement::kReplicas || job.goes_there_and_back()) {
    return InvalidKey(kKey, absl::StrCat("is not for ", job.method->name,
                                         ", whose microbatches of one stage do not all go to one "
                                         "other; leave it out"));
  }
  if (!job.stage_replicas.empty()) {
    return InvalidKey(kKey,
                      "cannot be together with replicas of stages, each of which would leave out "
                      "something else; leave one of them out");
  }
  if (job.listed != nullptr && !KeepsMicrobatchesInOrder(*job.listed)) {
    return InvalidKey(kKey,
                      "is not for this order of a step, in which a stage does the forwards or the "
                      "backwards of its microbatches in another order than theirs; leave it out");
  }
  if (!keeps_few) return MessageCompression{Kind::kInt8};
  constexpr double kKeep = 0.1;
  return MessageCompression{Kind::kTopK,
                            pipeline.has_compress_keep() ? pipeline.compress_keep() : kKeep};
}

}  // namespace penstock
