#include "services/coordinator/coordinator_metrics.h"

#include <map>
#include <string>

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

}  // namespace

std::vector<MetricFamily> CoordinatorMetrics(const CoordinatorSnapshot& snapshot) {
  std::vector<MetricFamily> families = {JobsByState(snapshot), WorkersByState(snapshot)};
  for (const JobMetric& metric : kJobMetrics) {
    families.push_back(JobFamily(snapshot, metric));
  }
  return families;
}

}  // namespace penstock
