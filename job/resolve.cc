#include "job/resolve.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/data/data_kind.h"
#include "job/keys/check_fields.h"
#include "job/keys/suggest.h"
#include "job/model_graph.h"
#include "job/prediction.h"
#include "job/resolve_pipeline.h"
#include "model/fuse_branches.h"

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

OptimizerConfig OptimizerOf(const v1::OptimizerSpec& spec, Precision precision) {
  if (spec.has_sgd()) {
    return SgdConfig{.momentum = spec.sgd().momentum(),
                     .weight_decay = spec.sgd().weight_decay(),
                     .nesterov = spec.sgd().nesterov()};
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
                                .weight_decay = muon.weight_decay()},
                      .bf16 = HasMirror(precision)};
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
                          .momentum_average_decay = spec.momentum_average_decay(),
                          .adaptive_compensation = spec.adaptive_compensation(),
                          .mean_square_decay = spec.mean_square_decay()};
  if (spec.has_stage_momentum()) rules.stage_momentum = spec.stage_momentum();
  return rules;
}

LearningRate::Decay DecayOf(const std::string& word) {
  if (word == "linear") return LearningRate::Decay::kLinear;
  if (word == "cosine") return LearningRate::Decay::kCosine;
  if (word == "step") return LearningRate::Decay::kStep;
  if (word == "inverse_square_root") return LearningRate::Decay::kInverseSquareRoot;
  if (word == "wsd") return LearningRate::Decay::kWsd;
  return LearningRate::Decay::kConstant;
}

// Of wsd, whose decay ends after `steps`; of other courses none.
int64_t CooldownStepsOf(const v1::LearningRateSpec& rate, int64_t steps) {
  constexpr int64_t kStepsToCooldown = 10;  // of the paper: a tenth is enough
  if (DecayOf(rate.decay()) != LearningRate::Decay::kWsd) return 0;
  return rate.has_cooldown_steps() ? rate.cooldown_steps() : steps / kStepsToCooldown;
}

LearningRate LearningRateOf(const v1::TrainingSpec& training) {
  const v1::LearningRateSpec& rate = training.learning_rate();
  const int64_t steps = rate.has_decay_steps() ? rate.decay_steps() : training.steps();
  std::vector<int64_t> milestones(rate.milestones().begin(), rate.milestones().end());
  for (int64_t& milestone : milestones) milestone *= training.batch();
  return LearningRate{.peak = PeakRateOf(training.optimizer()),
                      .warmup_samples = rate.warmup_steps() * training.batch(),
                      .total_samples = steps * training.batch(),
                      .decay = DecayOf(rate.decay()),
                      .final_fraction = rate.final_fraction(),
                      .milestone_samples = std::move(milestones),
                      .factor = rate.factor(),
                      .cooldown_samples = CooldownStepsOf(rate, steps) * training.batch()};
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

absl::Status CheckWeightsOfMethod(const ResolvedJob& job) {
  const absl::Status weights = CheckWeights(*job.method, *job.weights);
  if (weights.ok()) return weights;
  std::vector<absl::string_view> others;
  for (const Method& method : Methods()) {
    if (CheckWeights(method, *job.weights).ok()) others.push_back(method.name);
  }
  return InvalidKey("pipeline.weights",
                    absl::StrCat(weights.message(), "; leave the key out, or use one of ",
                                 absl::StrJoin(others, ", ")));
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
  if (rules.adaptive_compensation && rules.delay_compensation == 0.0) {
    return InvalidKey("training.staleness.adaptive_compensation",
                      "is how training.staleness.delay_compensation is applied, which is 0; set "
                      "that, or leave this out");
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

absl::Status CheckAverage(const ResolvedJob& job) {
  constexpr absl::string_view kKey = "validation.weights";
  if (!job.validates_average) return absl::OkStatus();
  if (!job.average_decay.has_value()) {
    return InvalidKey(kKey,
                      "is ema, but training.ema keeps no average; set training.ema.decay, or "
                      "validate the current weights");
  }
  if (!job.goes_there_and_back()) return absl::OkStatus();
  return InvalidKey(kKey, absl::StrCat("cannot be ema with ", job.method->name,
                                       ", where workers that update no weights validate, too; "
                                       "leave it out"));
}

// Checks model.pretrained.
absl::Status CheckPretrained(const v1::ModelSpec& spec, const ModelGraph& model) {
  if (!spec.has_pretrained()) return absl::OkStatus();
  const auto& digests = spec.pretrained().layer_sha256();
  if (!digests.empty() && digests.size() != model.size()) {
    return InvalidKey(
        "model.pretrained.layer_sha256",
        absl::StrCat("has ", digests.size(), " digests; expected one for each of the ",
                     model.size(), " layers, or none"));
  }
  for (const std::string& digest : digests) {
    PENSTOCK_RETURN_IF_ERROR(CheckDigest("model.pretrained.layer_sha256", digest));
  }
  return absl::OkStatus();
}

// Checks what the method refuses with any number of stages.
absl::Status CheckMethod(const ResolvedJob& job) {
  PENSTOCK_RETURN_IF_ERROR(CheckAverage(job));
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
                     "that all would be on the device again; leave it on the device"));
  }
  if (!job.method->synchronous && job.clip.kind == Clip::Kind::kGlobalNorm) {
    return InvalidKey(
        "training.clip.global_norm",
        absl::StrCat(job.method->name,
                     " updates every stage by itself, so no moment has the gradient of "
                     "the whole model; use training.clip.layer_norm or no clipping"));
  }
  return CheckStalenessRules(job);
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
  PENSTOCK_ASSIGN_OR_RETURN(const ModelGraph described, BuildModel(spec));
  job.model = FuseBranches(described);
  PENSTOCK_RETURN_IF_ERROR(CheckPretrained(spec.model(), described));
  job.pretrained = IdentityOfPretrained(spec.model());
  if (spec.model().has_ignored_target()) {
    job.ignored_target = static_cast<int32_t>(spec.model().ignored_target());
  }
  PENSTOCK_RETURN_IF_ERROR(DataKindOf(spec.data()).fits(spec.data(), job.model));
  const bool is_searched = spec.pipeline().method() == SearchedMethod().name;
  if (spec.pipeline().schedule_file().empty() && !is_searched) {
    PENSTOCK_ASSIGN_OR_RETURN(job.method, FindMethodOfJob(spec.pipeline().method()));
  } else {
    job.method = is_searched ? &SearchedMethod() : &ListedMethod();
    PENSTOCK_ASSIGN_OR_RETURN(job.listed, ReadListed(spec.pipeline(), *job.method));
  }
  if (!spec.pipeline().weights().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(job.weights, WeightsOfJob(spec.pipeline().weights()));
    PENSTOCK_RETURN_IF_ERROR(CheckWeightsOfMethod(job));
  }
  PENSTOCK_ASSIGN_OR_RETURN(job.stages_per_worker, StagesPerWorkerOf(spec.pipeline(), job));
  const auto& stage_layers = spec.pipeline().stage_layers();
  job.stage_layers.assign(stage_layers.begin(), stage_layers.end());
  const auto& worker_names = spec.pipeline().worker_names();
  job.worker_names.assign(worker_names.begin(), worker_names.end());
  PENSTOCK_ASSIGN_OR_RETURN(job.workers, WorkersOfJob(spec.pipeline(), *job.method));
  job.stages = spec.pipeline().stages();
  PENSTOCK_ASSIGN_OR_RETURN(job.stages_per_forward,
                            StagesPerForwardOf(spec.pipeline(), *job.method));
  if (spec.pipeline().order() == "recorded") job.order = Order::kRecorded;
  if (spec.pipeline().has_in_flight_factor()) {
    job.in_flight_factor = spec.pipeline().in_flight_factor();
  }
  if (job.draws() && spec.pipeline().rpd().has_delta()) job.delta = spec.pipeline().rpd().delta();
  job.steps = training.steps();
  job.batch = training.batch();
  job.microbatches = training.microbatches();
  job.microbatch_samples = training.batch() / training.microbatches();
  PENSTOCK_ASSIGN_OR_RETURN(job.update_every, UpdateEveryOf(spec.pipeline(), job));
  job.synchronous_steps = spec.pipeline().synchronous_steps();
  job.precision = PrecisionOf(training.precision()).value_or(Precision::kF32);
  job.optimizer = OptimizerOf(training.optimizer(), job.precision);
  job.staleness = StalenessRulesOf(training.staleness());
  job.learning_rate = LearningRateOf(training);
  if (training.has_ema()) job.average_decay = training.ema().decay();
  job.validates_average = spec.validation().weights() == "ema";
  job.stop_after = spec.validation().stop_after();
  job.clip = ClipOf(training.clip());
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
  PENSTOCK_ASSIGN_OR_RETURN(job.offload, OffloadOf(spec.pipeline(), job));
  job.weights_in_file = job.listed != nullptr
                            ? job.listed->topology.weights_in_file
                            : spec.pipeline().stream_weights() == kStreamsFromFile;
  PENSTOCK_ASSIGN_OR_RETURN(job.streams_weights, StreamsWeightsOf(spec.pipeline(), job));
  PENSTOCK_ASSIGN_OR_RETURN(job.compression, CompressionOf(spec.pipeline(), job));
  PENSTOCK_RETURN_IF_ERROR(CheckStages(
      job, spec.pipeline().has_stages() ? spec.pipeline().stages() : FewestStages(job)));
  PENSTOCK_RETURN_IF_ERROR(CheckPrediction(spec, job));
  PENSTOCK_RETURN_IF_ERROR(CheckFeedback(spec, job));
  return job;
}

}  // namespace penstock
