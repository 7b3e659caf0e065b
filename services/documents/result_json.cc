#include "services/documents/result_json.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "coordinator/job_state.h"
#include "services/documents/work_done.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Json StatisticJson(const v1::Statistic& statistic) {
  return {{"max", statistic.max()}, {"mean", statistic.mean()}};
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json MomentOrNull(int64_t unix_ms) { return unix_ms == 0 ? Json() : Json(unix_ms); }

Json MemoryJson(const v1::StageMemory& memory) {
  return {{"weights", memory.weights()},
          {"gradients", memory.gradients()},
          {"optimizer", memory.optimizer()},
          {"stashed_weights", memory.stashed_weights()},
          {"host_stashed_weights", memory.host_stashed_weights()},
          {"predicted_weights", memory.predicted_weights()},
          {"moved_weights", memory.predicted_weights()},  // its name before, for one version
          {"activations", memory.activations()},
          {"scratch", memory.scratch()}};
}

Json CopiesJson(const v1::StageReport& stage) {
  Json copies = Json::object();
  for (const auto& [direction, time] : {std::pair("to_device", &stage.copies_to_device()),
                                        std::pair("to_host", &stage.copies_to_host())}) {
    copies[direction] = {{"count", time->count()}, {"seconds", time->seconds()}};
  }
  return copies;
}

Json GraphsJson(const v1::GraphCounts& graphs) {
  return {{"passes", graphs.passes()},
          {"replayed", graphs.replayed()},
          {"recorded", graphs.recorded()},
          {"kept", graphs.kept()}};
}

Json EdgesJson(const v1::StageReport& stage) {
  Json edges = Json::array();
  for (const v1::EdgePath& path : stage.edges()) {
    edges.push_back({{"edge", path.edge()}, {"path", path.path()}});
  }
  return edges;
}

Json PredictionJson(const StepPrediction& prediction) {
  return {{"steps", prediction.steps_measured},
          {"measured_step_seconds", prediction.measured_step_s},
          {"predicted_step_seconds", prediction.predicted_step_s},
          {"error", prediction.error()},
          {"overhead_seconds", prediction.overhead_s}};
}

Json UseJson(const v1::RunUse& use) {
  Json workers = Json::array();
  for (const v1::WorkerUse& worker : use.workers()) {
    workers.push_back(
        {{"worker", worker.worker()},
         {"memory_bytes", worker.has_memory_bytes() ? Json(worker.memory_bytes()) : Json()},
         {"sent_bytes_per_step",
          worker.has_sent_bytes_per_step() ? Json(worker.sent_bytes_per_step()) : Json()}});
  }
  return {{"step_seconds", use.has_step_seconds() ? Json(use.step_seconds()) : Json()},
          {"workers", workers}};
}

}  // namespace

Json StageJson(const v1::StageReport& stage) {
  Json idle_causes = Json::object();
  for (const v1::IdleCause& cause : stage.idle_causes()) {
    idle_causes[cause.cause()] = cause.seconds();
  }
  Json actions = Json::array();
  for (const v1::ActionTime& action : stage.actions()) {
    actions.push_back({{"action", action.action()},
                       {"count", action.count()},
                       {"seconds", action.seconds()},
                       {"median_seconds", action.median_seconds()}});
  }
  return {
      {"stage", stage.stage()},
      {"worker", stage.worker()},
      {"layers", stage.layers()},
      {"busy_seconds", stage.busy_seconds()},
      {"idle_seconds", stage.idle_seconds()},
      {"bubble_ratio", stage.bubble_ratio()},
      {"staleness", StatisticJson(stage.staleness())},
      {"version_drift", StatisticJson(stage.version_drift())},
      {"versions_peak", stage.versions_peak()},
      {"predicted_weight_copies", stage.predicted_weight_copies()},
      {"moved_weight_copies", stage.predicted_weight_copies()},  // its name before, for one version
      {"activations_peak", stage.activations_peak()},
      {"bytes_sent", stage.bytes_sent()},
      {"peak_memory_bytes", stage.peak_memory_bytes()},
      {"first_layer", stage.first_layer()},
      {"window_seconds", stage.window_seconds()},
      {"idle_causes", idle_causes},
      {"messages_sent", stage.messages_sent()},
      {"updates", stage.updates()},
      {"allocations_steady", stage.allocations_steady()},
      {"memory_bytes", stage.memory_bytes()},
      {"predicted_memory_bytes", stage.predicted_memory_bytes()},
      {"memory", MemoryJson(stage.memory())},
      {"copies", CopiesJson(stage)},
      {"cuda_graphs", GraphsJson(stage.graphs())},
      {"device_graphs", GraphsJson(stage.graphs())},  // its name before, for one version
      {"attention_fallbacks", stage.attention_fallbacks()},
      {"edges", EdgesJson(stage)},
      {"actions", actions}};
}

Json FeedbackJson(const v1::Feedback& feedback) {
  return {{"predicted", feedback.has_predicted() ? UseJson(feedback.predicted()) : Json()},
          {"measured", UseJson(feedback.measured())},
          {"drifts", feedback.drifts()},
          {"drifts_told", feedback.drifts_told()},
          {"replans", feedback.replans()}};
}

Json PlanningJson(const v1::JobPlanning& planning) {
  if (planning.candidates().empty()) return nullptr;
  Json candidates = Json::array();
  for (const v1::PlannedCandidate& candidate : planning.candidates()) {
    Json race;
    if (candidate.has_race()) {
      const v1::RaceRecord& record = candidate.race();
      race = {{"rounds", record.rounds()},
              {"steps", record.steps()},
              {"loss", record.loss()},
              {"loss_error", record.loss_error()},
              {"reached_seconds",
               record.has_reached_seconds() ? Json(record.reached_seconds()) : Json()},
              {"failed", TextOrNull(record.failed())}};
    }
    Json factor;
    if (candidate.has_steps_factor()) {
      const v1::StepsFactor& predicted = candidate.steps_factor();
      factor = {{"expected", predicted.expected()},
                {"median", predicted.median()},
                {"low", predicted.low()},
                {"high", predicted.high()}};
    }
    candidates.push_back({{"name", candidate.name()},
                          {"method", candidate.method()},
                          {"stage_layers", std::vector<int32_t>(candidate.stage_layers().begin(),
                                                                candidate.stage_layers().end())},
                          {"layer_order", std::vector<std::string>(candidate.layer_order().begin(),
                                                                   candidate.layer_order().end())},
                          {"workers", std::vector<std::string>(candidate.workers().begin(),
                                                               candidate.workers().end())},
                          {"rejected", TextOrNull(candidate.rejected())},
                          {"step_seconds", candidate.step_seconds()},
                          {"bubble_ratio", candidate.bubble_ratio()},
                          {"memory_bytes", candidate.memory_bytes()},
                          {"staleness_max", candidate.staleness_max()},
                          {"steps_factor", factor},
                          {"race", race}});
  }
  return {{"chosen_by", planning.reason()},
          {"measuring_seconds", planning.measuring_seconds()},
          {"choosing_seconds", planning.choosing_seconds()},
          {"racing_seconds", planning.racing_seconds()},
          {"in_time", planning.in_time()},
          {"candidates", candidates}};
}

Json PlanJson(const v1::Plan& plan) {
  Json stages = Json::array();
  for (const v1::StageAssignment& stage : plan.stages()) {
    stages.push_back({{"stage", stage.stage()},
                      {"worker", stage.worker()},
                      {"address", stage.address()},
                      {"first_layer", stage.first_layer()},
                      {"layers", stage.layers()},
                      {"worker_index", stage.worker_index()}});
  }
  return {{"method", plan.method()},
          {"channel_capacity", plan.channel_capacity()},
          {"schedule_digest", plan.schedule_digest()},
          {"stages", stages}};
}

void AddMetrics(const google::protobuf::RepeatedPtrField<v1::MetricValue>& metrics, Json& json) {
  for (const v1::MetricValue& metric : metrics) json[metric.name()] = metric.value();
}

namespace {

// "worker_lost", ...; null of one that was not over before the job.
Json CauseJson(v1::AttemptCause cause) {
  if (cause == v1::ATTEMPT_CAUSE_UNSPECIFIED) return Json();
  const absl::string_view name = v1::AttemptCause_Name(cause);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "ATTEMPT_CAUSE_"));
}

Json AttemptsJson(const v1::JobResult& result) {
  Json attempts = Json::array();
  for (const v1::Attempt& attempt : result.attempts()) {
    attempts.push_back({{"epoch", attempt.epoch()},
                        {"first_step", attempt.first_step()},
                        {"last_step", attempt.last_step()},
                        {"cause", CauseJson(attempt.cause())},
                        {"worker", TextOrNull(attempt.worker())},
                        {"message", TextOrNull(attempt.message())},
                        {"detected_ms", MomentOrNull(attempt.detected_ms())},
                        {"resumed_ms", MomentOrNull(attempt.resumed_ms())},
                        {"steps_redone", attempt.steps_redone()}});
  }
  return attempts;
}

}  // namespace

Json ResultJson(const v1::GetJobResponse& job, const ResultJsonOptions& options) {
  const v1::JobResult& result = job.result();
  Json per_stage = Json::array();
  for (const v1::StageReport& stage : result.per_stage()) per_stage.push_back(StageJson(stage));
  // Before the first cut there are no reports of measurements.
  const bool reported = !per_stage.empty();
  const auto if_reported = [reported](double value) {
    return reported || value > 0 ? Json(value) : Json();
  };
  const WorkDone work = WorkDoneOf(result);
  Json validations = Json::array();
  for (const v1::LossPoint& point : result.validations()) {
    Json& validation = validations.emplace_back();
    validation = {{"step", point.step()}, {"loss", point.loss()}};
    AddMetrics(point.metrics(), validation);
  }
  Json validation_metrics = Json::object();
  AddMetrics(result.validation_metrics(), validation_metrics);
  Json json = {
      {"job", job.summary().name()},
      {"method", job.summary().method()},
      {"stages", result.stages()},
      {"microbatches", result.microbatches()},
      {"steps", result.steps()},
      {"tokens", result.tokens()},
      {"wall_seconds", result.wall_seconds()},
      {"tokens_per_second",
       work.unit == kTokens ? if_reported(result.tokens_per_second()) : Json()},
      {"train_loss", result.steps() > 0 ? Json(result.train_loss()) : Json()},
      {"validation_loss", result.has_validation_loss() ? Json(result.validation_loss()) : Json()},
      {"weights_sha256", TextOrNull(result.weights_sha256())},
      {"bubble_ratio", if_reported(result.bubble_ratio())},
      {"block_delay", result.has_block_delay() ? StatisticJson(result.block_delay()) : Json()},
      {"per_stage", per_stage},
      {"job_id", TextOrNull(job.summary().job_id())},
      {"state", JobStateName(job.summary().state())},
      {"error", TextOrNull(job.summary().error())},
      {"checkpoint", TextOrNull(result.checkpoint())},
      {"validations", validations},
      {"extra_cuts", std::vector<int64_t>(result.extra_cuts().begin(), result.extra_cuts().end())},
      {"recoveries", result.recoveries()}};
  if (options.losses) {
    Json losses = Json::array();
    for (const v1::LossPoint& point : result.losses()) {
      losses.push_back({{"step", point.step()},
                        {"loss", point.loss()},
                        {"unix_ms", MomentOrNull(point.unix_ms())}});
    }
    json["losses"] = losses;
  }
  json["prediction"] = options.prediction ? PredictionJson(*options.prediction) : Json();
  json["block_delay_measured"] =
      result.has_block_delay_measured() ? StatisticJson(result.block_delay_measured()) : Json();
  json["feedback"] = FeedbackJson(result.feedback());
  json["validation_metrics"] = validation_metrics;
  json["samples"] = result.samples();
  json["samples_per_second"] = if_reported(result.samples_per_second());
  json["unit"] = work.count > 0 ? Json(std::string(work.unit)) : Json();
  json["attempts"] = AttemptsJson(result);
  json["growths"] = result.growths();
  json["snapshot_step"] = result.snapshot_step();
  json["model_flops_per_second"] = if_reported(result.model_flops_per_second());
  json["product_flops_per_second"] =
      result.product_flops_per_second() > 0 ? Json(result.product_flops_per_second()) : Json();
  json["mfu"] = result.has_mfu() ? Json(result.mfu()) : Json();
  return json;
}

Json JobJson(const v1::JobSummary& job) {
  const std::optional<int> percentage = ProgressPercentage(job);
  // Whole seconds, as Kubeflow has them.
  const std::optional<int64_t> seconds =
      job.has_estimated_remaining_seconds()
          ? std::optional(static_cast<int64_t>(std::ceil(job.estimated_remaining_seconds())))
          : std::nullopt;
  return {{"job_id", job.job_id()},
          {"name", job.name()},
          {"method", job.method()},
          {"state", JobStateName(job.state())},
          {"step", job.step()},
          {"steps", job.steps()},
          {"submitted_unix_ms", MomentOrNull(job.submitted_unix_ms())},
          {"started_unix_ms", MomentOrNull(job.started_unix_ms())},
          {"ended_unix_ms", MomentOrNull(job.ended_unix_ms())},
          {"error", TextOrNull(job.error())},
          {"reason", TextOrNull(job.reason())},
          {"progress_percentage", percentage ? Json(*percentage) : Json()},
          {"estimated_remaining_seconds", seconds ? Json(*seconds) : Json()}};
}

Json WorkerJson(const v1::WorkerSummary& worker) {
  return {{"name", worker.name()},
          {"address", worker.address()},
          {"alive", worker.alive()},
          {"leaving", worker.leaving()},
          {"unusable_reason", TextOrNull(worker.unusable_reason())},
          {"device", worker.device()},
          {"memory_bytes", worker.memory_bytes()},
          {"job_id", TextOrNull(worker.job_id())},
          {"last_heartbeat_ms_ago", worker.last_heartbeat_ms_ago()},
          {"metrics_address", TextOrNull(worker.metrics_address())}};
}

}  // namespace penstock
