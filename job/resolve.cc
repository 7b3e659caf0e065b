#include "job/resolve.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/keys/key_options.h"
#include "job/keys/limits.h"
#include "job/keys/suggest.h"
#include "job/prediction.h"
#include "job/run/recorded.h"
#include "job/run/run_schedule.h"
#include "model/gpt.h"
#include "schedule/block_draws.h"
#include "schedule/lower.h"
#include "schedule/text.h"
#include "schedule/verify.h"

namespace penstock {
namespace {

absl::StatusOr<const Method*> FindMethodOfJob(const std::string& name) {
  absl::StatusOr<const Method*> method = FindMethod(absl::string_view(name));
  if (method.ok()) {
    return method;
  }
  std::vector<std::string> names = {std::string(SearchedMethod().name)};
  for (const Method& known : Methods()) {
    names.emplace_back(known.name);
  }
  const std::string nearest = NearestName(name, names);
  return InvalidKey("pipeline.method", absl::StrCat(method.status().message(),
                                                    nearest.empty() ? "" : "; did you mean ",
                                                    nearest, nearest.empty() ? "" : "?"));
}

// Reads and verifies the step that a job brings along, for `method`.
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
  if (pipeline.has_stages_per_worker()) {
    return InvalidKey("pipeline.stages_per_worker",
                      "cannot be together with pipeline.schedule_file, which says where each stage "
                      "is; leave one of them out");
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
  if (schedule->topology.form == Topology::Form::kThereAndBack) {
    return InvalidKey(
        "pipeline.schedule_file",
        "has pipelines that go there and back, but a custom schedule has stages that do "
        "both passes of their layers; use pipeline.method roundpipe");
  }
  if (schedule->topology.form == Topology::Form::kReplicas) {
    return InvalidKey(
        "pipeline.schedule_file",
        "has replicas of stages, but each stage of a custom schedule is on one worker; "
        "use pipeline.method 1f1b and pipeline.replicas");
  }
  if (schedule->topology.pipelines > 1) {
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

absl::StatusOr<Chain> BuildChain(const v1::ModelSpec& model) {
  absl::StatusOr<Chain> chain = BuildGpt(ModelOf(model));
  if (!chain.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("model.gpt.", chain.status().message()));
  }
  return chain;
}

OptimizerConfig OptimizerOf(const v1::OptimizerSpec& spec) {
  if (spec.has_sgd()) {
    return SgdConfig{.momentum = spec.sgd().momentum(), .weight_decay = spec.sgd().weight_decay()};
  }
  if (spec.has_nadamw()) {
    const v1::NAdamWSpec& nadamw = spec.nadamw();
    return NAdamWConfig{.beta1 = nadamw.beta1(),
                        .beta2 = nadamw.beta2(),
                        .epsilon = nadamw.epsilon(),
                        .weight_decay = nadamw.weight_decay(),
                        .momentum_decay = nadamw.momentum_decay()};
  }
  if (spec.has_muon()) {
    const v1::MuonSpec& muon = spec.muon();
    return MuonConfig{.momentum = muon.momentum(),
                      .adamw = {.beta1 = muon.beta1(),
                                .beta2 = muon.beta2(),
                                .epsilon = muon.epsilon(),
                                .weight_decay = muon.weight_decay()}};
  }
  const v1::AdamWSpec& adamw = spec.adamw();
  return AdamWConfig{.beta1 = adamw.beta1(),
                     .beta2 = adamw.beta2(),
                     .epsilon = adamw.epsilon(),
                     .weight_decay = adamw.weight_decay()};
}

StalenessRules StalenessRulesOf(const v1::StalenessSpec& spec) {
  StalenessRules rules = {.rescheduled_steps = spec.rescheduled_steps(),
                          .delay_compensation = spec.delay_compensation(),
                          .error_feedback = spec.error_feedback(),
                          .momentum_average_decay = spec.momentum_average_decay()};
  if (spec.has_stage_momentum()) rules.stage_momentum = spec.stage_momentum();
  return rules;
}

LearningRate LearningRateOf(const v1::TrainingSpec& training) {
  const v1::LearningRateSpec& rate = training.learning_rate();
  return LearningRate{
      .peak = PeakRateOf(training.optimizer()),
      .warmup_samples = rate.warmup_steps() * training.batch(),
      .total_samples =
          (rate.has_decay_steps() ? rate.decay_steps() : training.steps()) * training.batch(),
      .decay = rate.decay() == "linear"   ? LearningRate::Decay::kLinear
               : rate.decay() == "cosine" ? LearningRate::Decay::kCosine
                                          : LearningRate::Decay::kConstant,
      .final_fraction = rate.final_fraction()};
}

Clip ClipOf(const v1::ClipSpec& spec) {
  switch (spec.kind_case()) {
    case v1::ClipSpec::kGlobalNorm:
      return {.kind = Clip::Kind::kGlobalNorm, .norm_max = spec.global_norm()};
    case v1::ClipSpec::kLayerNorm:
      return {.kind = Clip::Kind::kLayerNorm, .norm_max = spec.layer_norm()};
    case v1::ClipSpec::KIND_NOT_SET:
      return {};
  }
  return {};
}

absl::StatusOr<const Weights*> WeightsOfJob(const std::string& name) {
  std::vector<std::string> names;
  for (const Weights* weights : kAllWeights) {
    if (name == weights->name) return weights;
    names.emplace_back(std::string(weights->name));
  }
  const std::string nearest = NearestName(name, names);
  return InvalidKey(
      "pipeline.weights",
      absl::StrCat("\"", name, "\" is not one of ", absl::StrJoin(names, ", "),
                   nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
}

// Returns whether all microbatches of an update read one version, which still exists at the update.
bool KeepsWhatAnUpdateRead(const ResolvedJob& job) {
  const Weights& weights = job.weights_read();
  return weights.backward_reads_forwards() &&
         (job.method->updates_each_microbatch || weights.old_reads == OldReads::kOneAnUpdate);
}

absl::Status CheckStalenessRules(const ResolvedJob& job) {
  const StalenessRules& rules = job.staleness;
  if (job.method->synchronous && (rules.any() || job.synchronous_steps > 0)) {
    return InvalidKey(rules.any() ? "training.staleness" : "pipeline.synchronous_steps",
                      absl::StrCat("makes no sense with ", job.method->name,
                                   ", which drains at every step, so that no gradient is late; "
                                   "leave it out, or use pipedream, pipedream-2bw or paci"));
  }
  if (job.draws() &&
      (rules.rescheduled_steps > 0 || rules.stage_momentum || rules.error_feedback)) {
    return InvalidKey(
        rules.rescheduled_steps > 0 ? "training.staleness.rescheduled_steps"
        : rules.stage_momentum      ? "training.staleness.stage_momentum"
                                    : "training.staleness.error_feedback",
        absl::StrCat("needs a delay that is the same for all updates of a stage, but ",
                     job.method->name,
                     " samples another for each; leave it out, or use pipedream "
                     "(training.staleness.delay_compensation goes with sampled delays)"));
  }
  if (rules.stage_momentum && KindOf(job.optimizer) == "sgd") {
    return InvalidKey("training.staleness.stage_momentum",
                      "needs an optimizer with momentum; set training.optimizer.sgd.momentum, or "
                      "use adamw, nadamw or muon");
  }
  if (rules.delay_compensation > 0.0 && !KeepsWhatAnUpdateRead(job)) {
    return InvalidKey(
        "training.staleness.delay_compensation",
        absl::StrCat("needs the weights that the forwards of an update read, but with ",
                     job.method->name, " and the weights \"", job.weights_read().name,
                     "\" they are gone or differ; pipedream (stash, vertical-sync) and "
                     "pipedream-2bw keep them"));
  }
  if (rules.delay_compensation > 0.0 && job.stash == StashPlace::kHost) {
    return InvalidKey("training.staleness.delay_compensation",
                      "cannot be together with training.stash host: every update would bring a "
                      "version back; keep the stash on the device");
  }
  return absl::OkStatus();
}

// Checks what the method refuses with any number of stages.
absl::Status CheckMethod(const ResolvedJob& job) {
  if (job.stages_per_worker < StagesPerWorkerMin(job.method->placement)) {
    return InvalidKey("pipeline.stages_per_worker",
                      absl::StrCat("is ", job.stages_per_worker, ", but ", job.method->name,
                                   " needs two or more stages on each worker"));
  }
  const Weights& weights = job.weights_read();
  if (job.stash == StashPlace::kHost && weights.old_reads == OldReads::kOneAMicrobatch) {
    return InvalidKey(
        "training.stash",
        absl::StrCat("cannot be host with ", job.method->name, " and the weights \"", weights.name,
                     "\": every microbatch in flight reads another old version, so "
                     "that all would be on the device again"));
  }
  const bool updates_alone = !job.method->synchronous || job.method->updates_each_microbatch;
  if (updates_alone && job.clip.kind == Clip::Kind::kGlobalNorm) {
    return InvalidKey(
        "training.clip.global_norm",
        absl::StrCat(job.method->name,
                     " updates every stage by itself, so no moment has the gradient of "
                     "the whole model; use training.clip.layer_norm or no clipping"));
  }
  return CheckStalenessRules(job);
}

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

// The replicas that the job asks for, directly or by the local steps that a step has room for.
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

// The replicas of each stage that the job asks for, checked as far as the number of stages does not matter.
absl::StatusOr<std::vector<int32_t>> StageReplicasOf(const v1::PipelineSpec& pipeline,
                                                     const ResolvedJob& job) {
  constexpr absl::string_view kKey = "pipeline.replicas";
  std::vector<int32_t> replicas(pipeline.replicas().begin(), pipeline.replicas().end());
  if (replicas.empty() || job.method->placement == Placement::kReplicas) {
    return std::vector<int32_t>();
  }
  if (!job.method->replicates_stages) {
    const absl::Status refused = PlaceReplicas(*job.method, replicas).status();
    return InvalidKey(kKey,
                      absl::StrCat("is not for ", job.method->name, ", which ", refused.message(),
                                   "; local-sgd has replicas of the whole model"));
  }
  if (pipeline.has_stages_per_worker() && pipeline.stages_per_worker() > 1) {
    return InvalidKey(kKey,
                      "cannot be together with pipeline.stages_per_worker; every replica of a "
                      "stage is alone on its worker");
  }
  const auto workers = std::accumulate(replicas.begin(), replicas.end(), int64_t{0});
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
  const bool several = *std::max_element(replicas.begin(), replicas.end()) > 1;
  if (several && job.synchronous_steps > 0) {
    return InvalidKey("pipeline.synchronous_steps",
                      "cannot be together with pipeline.replicas, whose gradients are added up in "
                      "1f1b and averaged in the method; leave one of them out, or train the first "
                      "steps with 1f1b and go on from their checkpoint");
  }
  return replicas;
}

// The workers that the stages go round, where the job says so.
absl::StatusOr<std::optional<int32_t>> WorkersOfJob(const v1::PipelineSpec& pipeline,
                                                    const Method& method) {
  constexpr absl::string_view kKey = "pipeline.workers";
  if (!pipeline.has_workers()) return std::nullopt;
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

// A schedule file's own choice holds unless the job says more.
absl::StatusOr<RecomputeChoice> RecomputeOf(const v1::PipelineSpec& pipeline,
                                            const ResolvedJob& job) {
  constexpr absl::string_view kKey = "pipeline.recompute";
  RecomputeChoice listed;
  if (job.listed != nullptr) {
    for (const StageId stage : job.listed->topology.Recomputing()) {
      listed.places.push_back(stage.value);
    }
  }
  if (pipeline.recompute().empty()) return listed;
  const absl::StatusOr<RecomputeChoice> choice = ParseRecompute(pipeline.recompute());
  if (!choice.ok()) return InvalidKey(kKey, choice.status().message());
  if (job.method->placement == Placement::kRoundTrip) {
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
  if (!choice->places.empty() && choice->places.back() >= job.chain.size()) {
    return InvalidKey(
        kKey, absl::StrCat("names stage ", choice->places.back(), ", but the model has only ",
                           job.chain.size(), " layers and every stage needs one; 0 to ",
                           job.chain.size() - 1, " would do"));
  }
  return *choice;
}

int64_t FewestStages(const ResolvedJob& job) {
  const std::vector<int32_t>& places = job.recompute.places;
  if (job.knows_stages()) return job.StagesOn(0);
  if (!job.stage_replicas.empty()) return places.empty() ? 1 : places.back() + 1;
  if (job.listed != nullptr || places.empty()) return job.StagesOn(1);
  return job.StagesOn(places.back() / job.stages_per_worker + 1);
}

absl::StatusOr<Topology> PlaceStages(const ResolvedJob& job, int64_t stages) {
  if (job.listed != nullptr) {
    Topology topology = job.listed->topology;
    topology.groups.clear();  // the model says what is shared
    topology.Recompute({});   // part of the job's choice
    return topology;
  }
  if (!job.stage_replicas.empty()) {
    return PlaceReplicas(*job.method, job.ReplicasOfStages(stages));
  }
  return Place(job.method->placement, static_cast<int32_t>(stages),
               static_cast<int32_t>(job.WorkersOf(stages)), job.microbatches, job.replicas);
}

// Checks that the layers that the job gives to each stage are those of the model.
absl::Status CheckStageLayers(const ResolvedJob& job, int64_t stages) {
  constexpr absl::string_view kKey = "pipeline.stage_layers";
  const auto listed = static_cast<int64_t>(job.stage_layers.size());
  if (listed == 0) return absl::OkStatus();
  if (listed != stages) {
    return InvalidKey(kKey, absl::StrCat("has ", listed, " numbers, but the pipeline has ", stages,
                                         " stages; one number for each stage, or pipeline.stages: ",
                                         listed, ", would do"));
  }
  const int64_t layers =
      std::accumulate(job.stage_layers.begin(), job.stage_layers.end(), int64_t{0});
  if (layers == job.chain.size()) return absl::OkStatus();
  const int64_t of_last = job.stage_layers.back() + job.chain.size() - layers;
  return InvalidKey(
      kKey, absl::StrCat("is ", absl::StrJoin(job.stage_layers, ","), ", together ", layers,
                         " layers, but the model has ", job.chain.size(),
                         " (embedding, attention and MLP of each block, final norm, head); ",
                         of_last >= 1 ? absl::StrCat(of_last, " as the last number")
                                      : absl::StrCat("numbers that add up to ", job.chain.size()),
                         " would do"));
}

absl::Status CheckWorkerNames(const ResolvedJob& job, int64_t stages) {
  const auto named = static_cast<int64_t>(job.worker_names.size());
  const int64_t needed = job.WorkersOf(stages);
  if (named == 0 || named == needed) return absl::OkStatus();
  return InvalidKey("pipeline.worker_names",
                    absl::StrCat("has ", named, " names, but the pipeline has ", needed,
                                 " workers; one name for each, or none, would do"));
}

absl::Status CheckListedStages(const ResolvedJob& job, int64_t stages) {
  const Schedule& listed = *job.listed;
  if (stages != listed.topology.stages()) {
    return InvalidKey("pipeline.stages",
                      absl::StrCat("is ", stages, ", but pipeline.schedule_file lists ",
                                   listed.topology.stages(), " stages"));
  }
  if (listed.range.count != job.microbatches) {
    return InvalidKey("training.microbatches",
                      absl::StrCat("is ", job.microbatches, ", but pipeline.schedule_file lists ",
                                   listed.range.count, " microbatches"));
  }
  return absl::OkStatus();
}

// Every optimizer has a learning rate of its own, so a new one is found here without a line.
const google::protobuf::FieldDescriptor* KindFieldOf(const v1::OptimizerSpec& spec) {
  return spec.GetReflection()->GetOneofFieldDescriptor(spec, spec.GetDescriptor()->oneof_decl(0));
}

const google::protobuf::FieldDescriptor& RateFieldOf(
    const google::protobuf::FieldDescriptor& kind) {
  return *kind.message_type()->FindFieldByName("learning_rate");
}

}  // namespace

GptConfig ModelOf(const v1::ModelSpec& model) {
  const v1::GptSpec& gpt = model.gpt();
  return {.layers = gpt.layers(),
          .width = gpt.width(),
          .heads = gpt.heads(),
          .context = gpt.context(),
          .vocabulary = gpt.vocabulary(),
          .dropout = gpt.dropout(),
          .tied_head = gpt.tied_head()};
}

double PeakRateOf(const v1::OptimizerSpec& spec) {
  const google::protobuf::FieldDescriptor* const kind = KindFieldOf(spec);
  if (kind == nullptr) return 0.0;
  const google::protobuf::Message& chosen = spec.GetReflection()->GetMessage(spec, kind);
  return chosen.GetReflection()->GetDouble(chosen, &RateFieldOf(*kind));
}

void ClearPeakRate(v1::OptimizerSpec& spec) {
  const google::protobuf::FieldDescriptor* const kind = KindFieldOf(spec);
  if (kind == nullptr) return;
  google::protobuf::Message& chosen = *spec.GetReflection()->MutableMessage(&spec, kind);
  chosen.GetReflection()->ClearField(&chosen, &RateFieldOf(*kind));
}

absl::StatusOr<ResolvedJob> ResolveJob(const v1::JobSpec& spec) {
  PENSTOCK_RETURN_IF_ERROR(CheckFields(spec));
  const v1::TrainingSpec& training = spec.training();
  ResolvedJob job;
  PENSTOCK_ASSIGN_OR_RETURN(job.chain, BuildChain(spec.model()));
  const bool is_searched = spec.pipeline().method() == SearchedMethod().name;
  if (spec.pipeline().schedule_file().empty() && !is_searched) {
    PENSTOCK_ASSIGN_OR_RETURN(job.method, FindMethodOfJob(spec.pipeline().method()));
  } else {
    job.method = is_searched ? &SearchedMethod() : &ListedMethod();
    PENSTOCK_ASSIGN_OR_RETURN(job.listed, ReadListed(spec.pipeline(), *job.method));
  }
  if (!spec.pipeline().weights().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(job.weights, WeightsOfJob(spec.pipeline().weights()));
  }
  job.stages_per_worker = spec.pipeline().has_stages_per_worker()
                              ? spec.pipeline().stages_per_worker()
                              : StagesPerWorkerMin(job.method->placement);
  const auto& stage_layers = spec.pipeline().stage_layers();
  job.stage_layers.assign(stage_layers.begin(), stage_layers.end());
  const auto& worker_names = spec.pipeline().worker_names();
  job.worker_names.assign(worker_names.begin(), worker_names.end());
  PENSTOCK_ASSIGN_OR_RETURN(job.workers, WorkersOfJob(spec.pipeline(), *job.method));
  job.stages = spec.pipeline().stages();
  if (spec.pipeline().order() == "recorded") job.order = Order::kRecorded;
  if (spec.pipeline().has_in_flight_factor()) {
    job.in_flight_factor = spec.pipeline().in_flight_factor();
  }
  if (job.draws() && spec.pipeline().rpd().has_delta()) job.delta = spec.pipeline().rpd().delta();
  job.steps = training.steps();
  job.batch = training.batch();
  job.microbatches = training.microbatches();
  job.microbatch = {.batch = training.batch() / training.microbatches(), .time = job.chain.context};
  job.synchronous_steps = spec.pipeline().synchronous_steps();
  job.optimizer = OptimizerOf(training.optimizer());
  job.staleness = StalenessRulesOf(training.staleness());
  job.learning_rate = LearningRateOf(training);
  job.clip = ClipOf(training.clip());
  job.precision = training.precision() == "bf16" ? Precision::kBf16 : Precision::kF32;
  job.rounding = training.rounding() == "stochastic" ? Rounding::kStochastic : Rounding::kNearest;
  job.stash = training.stash() == "host" ? StashPlace::kHost : StashPlace::kDevice;
  job.cuda_graphs = training.cuda_graphs() == "on";
  job.repeatability = training.deterministic() ? Repeatability::kBitwise : Repeatability::kFast;
  job.seed = training.seed();
  job.threads = training.threads();
  job.validation_batches = spec.validation().batches() * job.microbatches;
  PENSTOCK_RETURN_IF_ERROR(CheckMethod(job));
  PENSTOCK_ASSIGN_OR_RETURN(job.replicas, ReplicasOf(spec.pipeline(), job));
  PENSTOCK_ASSIGN_OR_RETURN(job.stage_replicas, StageReplicasOf(spec.pipeline(), job));
  PENSTOCK_ASSIGN_OR_RETURN(job.recompute, RecomputeOf(spec.pipeline(), job));
  PENSTOCK_RETURN_IF_ERROR(CheckStages(
      job, spec.pipeline().has_stages() ? spec.pipeline().stages() : FewestStages(job)));
  PENSTOCK_RETURN_IF_ERROR(CheckPrediction(spec, job));
  PENSTOCK_RETURN_IF_ERROR(CheckFeedback(spec, job));
  return job;
}

absl::Status CheckStages(const ResolvedJob& job, int64_t stages) {
  if (stages > job.chain.size()) {
    return InvalidKey(
        "pipeline.stages",
        absl::StrCat("is ", stages, ", but the model has only ", job.chain.size(),
                     " layers (embedding, attention and MLP of each block, final norm, "
                     "head) and every stage needs one"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckStageLayers(job, stages));
  PENSTOCK_RETURN_IF_ERROR(CheckWorkerNames(job, stages));
  if (job.listed != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(CheckListedStages(job, stages));
  } else if (job.knows_stages() && stages != job.StagesOn(0)) {
    return InvalidKey(
        "pipeline.replicas",
        absl::StrCat("has ", job.StagesOn(0), " numbers, but the pipeline has ", stages,
                     " stages; one number for each stage, or one for all, "
                     "would do"));
  } else if (!job.workers.has_value() && stages % job.stages_per_worker != 0) {
    const int64_t below = stages / job.stages_per_worker * job.stages_per_worker;
    return InvalidKey("pipeline.stages",
                      absl::StrCat("is ", stages, ", but every worker holds ",
                                   job.stages_per_worker, " stages (pipeline.stages_per_worker); ",
                                   below > 0 ? absl::StrCat(below, " or ") : "",
                                   below + job.stages_per_worker, " would do"));
  }
  const absl::StatusOr<Topology> topology = PlaceStages(job, stages);
  if (!topology.ok() && job.method->placement == Placement::kRoundTrip) {
    const bool too_few = 2 * stages - 1 < job.WorkersOf(stages);
    return InvalidKey(too_few ? "pipeline.stages" : "training.microbatches",
                      absl::StrCat(job.method->name, ": ", topology.status().message()));
  }
  if (!topology.ok() && !job.stage_replicas.empty()) {
    return InvalidKey("pipeline.replicas", topology.status().message());
  }
  if (!topology.ok()) {
    return InvalidKey("pipeline.stages_per_worker",
                      absl::StrCat(job.method->name, ": ", topology.status().message()));
  }
  const double drawn = static_cast<double>(job.steps) * static_cast<double>(job.microbatches) *
                       static_cast<double>(stages);
  if (job.draws() && drawn > static_cast<double>(kDrawsMax)) {
    return InvalidKey("training.steps",
                      absl::StrCat(job.method->name, " samples for every microbatch and stage, ",
                                   drawn, " times in ", job.steps, " steps; at most ", kDrawsMax,
                                   " are counted before a run: ",
                                   kDrawsMax / (job.microbatches * stages), " steps would do"));
  }
  if (const absl::Status places = CheckPlaces(job.recompute, topology->depth()); !places.ok()) {
    return InvalidKey("pipeline.recompute", places.message());
  }
  const ScheduleOptions options = ScheduleOptionsOf(job, *topology);
  if (!job.method->synchronous && options.topology.groups.size() > topology->groups.size()) {
    return InvalidKey(
        "model.gpt.tied_head",
        absl::StrCat("must be false for ", job.method->name, " with ", stages,
                     " stages: the method updates every stage by itself, so the first "
                     "and the last cannot share the embedding's weight"));
  }
  const absl::Status draws = CheckDraws(WeightPolicyOf(*job.method, options), options.topology);
  if (!draws.ok()) return InvalidKey("pipeline.rpd.delta", draws.message());
  const absl::Status step =
      CheckBuildable(*job.method, options, {.first = 0, .count = job.microbatches});
  const bool too_long = job.microbatches > ListedMicrobatchesMax(options.topology.depth());
  if (!step.ok()) {
    return InvalidKey(too_long ? "training.microbatches" : "pipeline.method", step.message());
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRecordable(job, options));
  if (!job.staleness.error_feedback) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StageLateness> lateness, LatenessOf(job, options));
  int64_t worst = 0;
  for (const StageLateness& stage : lateness) worst = std::max(worst, stage.staleness);
  if (worst <= 1) return absl::OkStatus();
  return InvalidKey("training.staleness.error_feedback",
                    absl::StrCat("makes up for a delay of one update, but with ", job.method->name,
                                 " on ", stages, " stages gradients are up to ", worst,
                                 " updates late; use pipedream-2bw, whose delay is 1 on any number "
                                 "of stages, or an update per step (paci)"));
}

int64_t ResolvedJob::UpdatesBetween(int64_t from_step, int64_t to_step, int64_t stages,
                                    int64_t stage) const {
  const int64_t begins = std::clamp(synchronous_steps, from_step, to_step);
  const int64_t updates =
      (begins - from_step) * (microbatches / microbatches_of_update(from_step)) +
      (to_step - begins) * (microbatches / microbatches_of_update(to_step));
  const bool by_replica = method->updates_each_microbatch && !stage_replicas.empty();
  return updates / (by_replica ? ReplicasOfStages(stages)[stage] : PipelinesOf(stages));
}

int64_t ResolvedJob::MovesUntil(int64_t step, int64_t stage, int64_t stages) const {
  const BlockDraws draws(seed, PipelineDelay(stages), static_cast<int32_t>(stages));
  const int64_t begins = std::min(synchronous_steps, step);
  int64_t moves = begins;  // an update a step until the method begins
  for (int64_t m = begins * microbatches; m < step * microbatches; ++m) {
    moves += draws.StageOf(m) == stage;
  }
  return moves;
}

Topology TopologyOf(const ResolvedJob& job, int64_t stages) {
  return PlaceStages(job, stages).value();
}

ScheduleOptions ScheduleOptionsOf(const ResolvedJob& job, Topology topology) {
  if (job.chain.tied()) TieEnds(topology);
  topology.Recompute(ChosenStages(job.recompute, topology));
  return {.topology = std::move(topology),
          .microbatches_per_step = job.microbatches,
          .weights = job.weights,
          .delta = job.delta,
          .seed = job.seed,
          .listed = job.listed,
          .global_norm = job.clip.kind == Clip::Kind::kGlobalNorm};
}

}  // namespace penstock
