#include "results/job_timeline.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "coordinator/job_state.h"
#include "results/timeline_message.h"

namespace penstock {

std::string PredictedNote(const ComparedSteps& compared) {
  return absl::StrFormat("a step takes %.1f ms, simulated with %s", compared.predicted_step_s * 1e3,
                         compared.source == TimesSource::kPlan ? "the times it was planned by"
                                                               : "the medians of what is measured");
}

std::string MeasuredNote(const ComparedSteps& compared) {
  return absl::StrFormat("a step takes %.1f ms (%+.1f %%), the mean of %d from step %d on",
                         compared.measured_step_s * 1e3, compared.error() * 100, compared.steps,
                         compared.first_step + 1);
}

absl::StatusOr<JobTimeline> JobTimelineOf(const v1::GetJobResponse& job,
                                          const v1::GetTimelineResponse& response) {
  JobTimeline timeline;
  PENSTOCK_ASSIGN_OR_RETURN(timeline.measured, TimelineOf(response));
  timeline.missing = {response.missing_workers().begin(), response.missing_workers().end()};
  if (timeline.measured.spans.empty()) {
    return absl::FailedPreconditionError(
        timeline.missing.empty()
            ? IsTerminal(job.summary().state())
                  ? "it ended before a step was done, so its workers have measured nothing"
                  : "no step is done yet, so the workers have measured nothing"
            : absl::StrCat("no worker answered: ", absl::StrJoin(timeline.missing, ", ")));
  }
  timeline.workers.resize(timeline.measured.workers);
  for (const v1::StageAssignment& stage : job.plan().stages()) {
    if (stage.worker_index() >= 0 && stage.worker_index() < timeline.measured.workers) {
      timeline.workers[stage.worker_index()] = stage.worker();
    }
  }
  timeline.attempts = {job.result().attempts().begin(), job.result().attempts().end()};
  if (absl::StatusOr<Topology> topology = TopologyOfPlan(job); topology.ok()) {
    timeline.topology = *std::move(topology);
  }
  timeline.compared = CompareWithPrediction(job, timeline.measured);
  return timeline;
}

std::vector<DrawnTimeline> RowsOf(const JobTimeline& timeline) {
  const Topology* topology = timeline.topology.has_value() ? &*timeline.topology : nullptr;
  std::vector<DrawnTimeline> rows = {{.timeline = &timeline.measured,
                                      .name = "measured",
                                      .note = "",
                                      .workers = timeline.workers,
                                      .topology = topology}};
  if (timeline.compared.ok()) {
    rows[0].note = MeasuredNote(*timeline.compared);
    rows.push_back({.timeline = &timeline.compared->predicted,
                    .name = "predicted",
                    .note = PredictedNote(*timeline.compared),
                    .workers = timeline.workers,
                    .topology = topology});
  }
  return rows;
}

std::string TitleNotes(const JobTimeline& timeline) {
  std::string notes;
  if (timeline.attempts.size() > 1) {
    absl::StrAppend(&notes, ", attempt ", timeline.attempts.size(), " from step ",
                    timeline.attempts.back().first_step() + 1, " on");
  }
  if (!timeline.missing.empty()) {
    absl::StrAppend(&notes, ", no answer from ", absl::StrJoin(timeline.missing, ", "));
  }
  return notes;
}

std::string TimelineNotes(const JobTimeline& timeline) {
  std::string notes;
  for (size_t i = 0; i + 1 < timeline.attempts.size(); ++i) {
    absl::StrAppend(&notes, "attempt ", i + 1, " ended after step ",
                    timeline.attempts[i].last_step(), ": ", timeline.attempts[i].message(), "\n");
  }
  if (!timeline.missing.empty()) {
    absl::StrAppend(&notes, "without ", absl::StrJoin(timeline.missing, ", "),
                    ", which did not answer in time\n");
  }
  if (!timeline.compared.ok()) {
    absl::StrAppend(&notes, "nothing is predicted: ", timeline.compared.status().message(), "\n");
  }
  return notes;
}

}  // namespace penstock
