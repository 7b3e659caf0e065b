#include "services/coordinator/coordinator_metrics.h"

#include <map>
#include <string>
#include <utility>

namespace penstock {
namespace {

using Kind = MetricFamily::Kind;

MetricFamily JobsByState(const CoordinatorSnapshot& snapshot) {
  std::map<std::string, int> counts;
  for (int state = v1::JOB_STATE_QUEUED; state <= v1::JOB_STATE_CANCELLED; ++state) {
    counts[JobStateName(static_cast<v1::JobState>(state))] = 0;
  }
  for (const v1::JobSummary& job : snapshot.jobs.jobs()) {
    ++counts[JobStateName(job.state())];
  }
  MetricFamily family{Kind::kGauge, "penstock_jobs", "Jobs the coordinator lists, by state.", {}};
  for (const auto& [state, count] : counts) {
    family.samples.push_back({{{"state", state}}, static_cast<double>(count)});
  }
  return family;
}

MetricFamily WorkersByState(const CoordinatorSnapshot& snapshot) {
  std::map<std::string, int> counts = {{"free", 0}, {"busy", 0}, {"lost", 0}};
  for (const v1::WorkerSummary& worker : snapshot.workers.workers()) {
    ++counts[!worker.alive() ? "lost" : worker.job_id().empty() ? "free" : "busy"];
  }
  MetricFamily family{
      Kind::kGauge, "penstock_workers", "Workers the coordinator knows, by state.", {}};
  for (const auto& [state, count] : counts) {
    family.samples.push_back({{{"state", state}}, static_cast<double>(count)});
  }
  return family;
}

// A number of a job under way and how it is shown.
struct JobMetric {
  Kind kind;
  const char* name;
  const char* help;
  double (*value)(const v1::JobResult&);
  bool (*known)(const v1::JobResult&);
};

constexpr JobMetric kJobMetrics[] = {
    {Kind::kCounter, "penstock_job_steps_total", "Steps done, from the start of the job.",
     [](const v1::JobResult& r) { return static_cast<double>(r.steps()); },
     [](const v1::JobResult&) { return true; }},
    {Kind::kCounter, "penstock_job_tokens_total", "Tokens trained on since this run began.",
     [](const v1::JobResult& r) { return static_cast<double>(r.tokens()); },
     [](const v1::JobResult&) { return true; }},
    {Kind::kGauge, "penstock_job_train_loss", "Mean training loss of the last 10 steps.",
     [](const v1::JobResult& r) { return r.train_loss(); },
     [](const v1::JobResult& r) { return r.losses_size() > 0; }},
    {Kind::kGauge, "penstock_job_validation_loss", "Loss of the last validation.",
     [](const v1::JobResult& r) { return r.validation_loss(); },
     [](const v1::JobResult& r) { return r.has_validation_loss(); }},
    {Kind::kGauge, "penstock_job_drifts",
     "1 if steps or memory have left what was predicted, else 0.",
     [](const v1::JobResult& r) { return r.feedback().drifts() ? 1.0 : 0.0; },
     [](const v1::JobResult& r) { return r.feedback().has_predicted(); }},
    {Kind::kCounter, "penstock_job_drifts_total",
     "How often it was told that steps or memory left what was predicted, or returned.",
     [](const v1::JobResult& r) { return static_cast<double>(r.feedback().drifts_told()); },
     [](const v1::JobResult& r) { return r.feedback().has_predicted(); }},
    {Kind::kCounter, "penstock_job_replans_total", "New splits that the job went on with.",
     [](const v1::JobResult& r) { return static_cast<double>(r.feedback().replans()); },
     [](const v1::JobResult& r) { return r.feedback().has_predicted(); }},
};

MetricFamily JobFamily(const CoordinatorSnapshot& snapshot, const JobMetric& metric) {
  MetricFamily family{metric.kind, metric.name, metric.help, {}};
  for (const auto& [job_id, result] : snapshot.results) {
    if (metric.known(result)) {
      family.samples.push_back({{{"job", job_id}}, metric.value(result)});
    }
  }
  return family;
}

// What was predicted beside what is measured, of the jobs under way: one family for each quantity, with the label
// `source`.
std::vector<MetricFamily> FeedbackFamilies(const CoordinatorSnapshot& snapshot) {
  MetricFamily step{Kind::kGauge,
                    "penstock_job_step_seconds",
                    "Time of a step: predicted, and the median of the last ones.",
                    {}};
  MetricFamily memory{Kind::kGauge,
                      "penstock_job_worker_memory_bytes",
                      "Peak memory of a worker: predicted, and measured until the last cut.",
                      {}};
  MetricFamily sent{Kind::kGauge,
                    "penstock_job_worker_sent_bytes_per_step",
                    "What a worker sends the others in a step of training: predicted, and "
                    "measured until the last cut.",
                    {}};
  const auto add = [&](const std::string& job_id, const char* source, const v1::RunUse& use) {
    if (use.has_step_seconds()) {
      step.samples.push_back({{{"job", job_id}, {"source", source}}, use.step_seconds()});
    }
    for (const v1::WorkerUse& worker : use.workers()) {
      const std::vector<std::pair<std::string, std::string>> labels = {
          {"job", job_id}, {"worker", worker.worker()}, {"source", source}};
      if (worker.has_memory_bytes()) {
        memory.samples.push_back({labels, static_cast<double>(worker.memory_bytes())});
      }
      if (worker.has_sent_bytes_per_step()) {
        sent.samples.push_back({labels, worker.sent_bytes_per_step()});
      }
    }
  };
  for (const auto& [job_id, result] : snapshot.results) {
    add(job_id, "predicted", result.feedback().predicted());
    add(job_id, "measured", result.feedback().measured());
  }
  return {step, memory, sent};
}

}  // namespace

std::vector<MetricFamily> CoordinatorMetrics(const CoordinatorSnapshot& snapshot) {
  std::vector<MetricFamily> families = {JobsByState(snapshot), WorkersByState(snapshot)};
  for (const JobMetric& metric : kJobMetrics) {
    families.push_back(JobFamily(snapshot, metric));
  }
  for (MetricFamily& family : FeedbackFamilies(snapshot)) families.push_back(std::move(family));
  return families;
}

}  // namespace penstock
