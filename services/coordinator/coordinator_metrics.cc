#include "services/coordinator/coordinator_metrics.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/metrics/process_metrics.h"

namespace penstock {
namespace {

void AddCounts(const char* name, const std::map<std::string, int>& counts, MetricSet& metrics) {
  for (const auto& [state, count] : counts) metrics.Add(name, {state}, count);
}

void AddJobStates(const v1::ListJobsResponse& jobs, MetricSet& metrics) {
  std::map<std::string, int> counts;
  for (int state = v1::JOB_STATE_QUEUED; state <= v1::JOB_STATE_CANCELLED; ++state) {
    counts[JobStateName(static_cast<v1::JobState>(state))] = 0;
  }
  for (const v1::JobSummary& job : jobs.jobs()) ++counts[JobStateName(job.state())];
  AddCounts("penstock_jobs", counts, metrics);
}

void AddWorkers(const v1::ListWorkersResponse& workers, MetricSet& metrics) {
  std::map<std::string, int> counts = {{"free", 0}, {"busy", 0}, {"leaving", 0}, {"lost", 0}};
  for (const v1::WorkerSummary& worker : workers.workers()) {
    ++counts[!worker.alive()           ? "lost"
             : worker.leaving()        ? "leaving"
             : worker.job_id().empty() ? "free"
                                       : "busy"];
    const std::string& name = worker.name();
    metrics.Add("penstock_worker_info", {name, worker.device()}, 1);
    metrics.Add("penstock_worker_up", {name}, worker.alive() ? 1 : 0);
    metrics.Add("penstock_worker_heartbeat_age_seconds", {name},
                static_cast<double>(worker.last_heartbeat_ms_ago()) * 1e-3);
    metrics.Add("penstock_worker_device_memory_bytes", {name},
                static_cast<double>(worker.memory_bytes()));
  }
  AddCounts("penstock_workers", counts, metrics);
}

void AddProgress(const v1::JobSummary& job, const v1::JobResult& result, MetricSet& metrics) {
  const std::string& id = job.job_id();
  const auto add = [&](const char* name, double value) { metrics.Add(name, {id}, value); };
  metrics.Add("penstock_job_info", {id, job.name(), job.method()}, 1);
  add("penstock_job_running", job.state() == v1::JOB_STATE_RUNNING ? 1 : 0);
  add("penstock_job_steps_total", static_cast<double>(result.steps()));
  add("penstock_job_target_steps", static_cast<double>(job.steps()));
  add("penstock_job_tokens_total", static_cast<double>(result.tokens()));
  add("penstock_job_loss_not_finite", result.not_finite() ? 1 : 0);
  add("penstock_job_recoveries_total", static_cast<double>(result.recoveries()));
  add("penstock_job_planning_seconds", result.planning_seconds());
  if (result.last_step_unix_ms() > 0) {
    add("penstock_job_last_step_timestamp_seconds",
        static_cast<double>(result.last_step_unix_ms()) * 1e-3);
  }
  if (result.tokens() > 0) add("penstock_job_train_loss", result.train_loss());
  if (result.has_validation_loss()) add("penstock_job_validation_loss", result.validation_loss());
}

// Adds a block delay, predicted or measured.
void AddBlockDelay(const std::string& job_id, const char* source, const v1::Statistic& delay,
                   const google::protobuf::RepeatedPtrField<v1::DelayCounts>& stages,
                   MetricSet& metrics) {
  metrics.Add("penstock_job_block_delay_max_updates", {job_id, source}, delay.max());
  for (int stage = 0; stage < stages.size(); ++stage) {
    const v1::DelayCounts& delays = stages[stage];
    metrics.AddHistogram("penstock_job_block_delay_updates", {job_id, absl::StrCat(stage), source},
                         {.counts = {delays.microbatches().begin(), delays.microbatches().end()},
                          .sum = static_cast<double>(delays.sum())});
  }
}

void AddBlockDelays(const std::string& job_id, const v1::JobResult& result, MetricSet& metrics) {
  if (result.has_block_delay()) {
    AddBlockDelay(job_id, "predicted", result.block_delay(), result.block_delays(), metrics);
  }
  if (result.has_block_delay_measured()) {
    AddBlockDelay(job_id, "measured", result.block_delay_measured(), result.block_delays_measured(),
                  metrics);
  }
}

// Adds what was predicted, or what is measured, of a job.
void AddUse(const std::string& job_id, const char* source, const v1::RunUse& use,
            MetricSet& metrics) {
  if (use.has_step_seconds()) {
    metrics.Add("penstock_job_step_seconds", {job_id, source}, use.step_seconds());
  }
  for (const v1::WorkerUse& worker : use.workers()) {
    const std::vector<std::string> labels = {job_id, worker.worker(), source};
    if (worker.has_memory_bytes()) {
      metrics.Add("penstock_job_worker_memory_bytes", labels,
                  static_cast<double>(worker.memory_bytes()));
    }
    if (worker.has_sent_bytes_per_step()) {
      metrics.Add("penstock_job_worker_step_sent_bytes", labels, worker.sent_bytes_per_step());
    }
  }
}

void AddFeedback(const std::string& job_id, const v1::Feedback& feedback, MetricSet& metrics) {
  AddUse(job_id, "predicted", feedback.predicted(), metrics);
  AddUse(job_id, "measured", feedback.measured(), metrics);
  if (!feedback.has_predicted()) return;
  metrics.Add("penstock_job_off_prediction", {job_id}, feedback.drifts() ? 1 : 0);
  metrics.Add("penstock_job_drifts_total", {job_id}, static_cast<double>(feedback.drifts_told()));
  metrics.Add("penstock_job_replans_total", {job_id}, static_cast<double>(feedback.replans()));
}

}  // namespace

void AddCoordinatorMetrics(const CoordinatorSnapshot& snapshot, MetricSet& metrics) {
  AddJobStates(snapshot.jobs, metrics);
  AddWorkers(snapshot.workers, metrics);
  for (const v1::JobSummary& job : snapshot.jobs.jobs()) {
    const auto result = snapshot.results.find(job.job_id());
    if (result == snapshot.results.end()) continue;
    AddProgress(job, result->second, metrics);
    AddBlockDelays(job.job_id(), result->second, metrics);
    AddFeedback(job.job_id(), result->second.feedback(), metrics);
  }
  AddRejectedMessages(snapshot.rejected, metrics);
}

void AddTracingMetrics(const SpanExporter::Counts& counts, MetricSet& metrics) {
  const auto add = [&](const char* name, int64_t value) {
    metrics.Add(name, {}, static_cast<double>(value));
  };
  add("penstock_otlp_exported_spans_total", counts.exported);
  add("penstock_otlp_dropped_spans_total", counts.dropped);
  add("penstock_otlp_failed_requests_total", counts.failed_requests);
}

}  // namespace penstock
