// JobTimeline: what a user sees of a job's timeline: measured, and predicted beside it.
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/cluster.pb.h"
#include "results/predicted_timeline.h"
#include "schedule/drawn_timeline.h"

namespace penstock {

struct JobTimeline {
  Timeline measured;                  // not empty
  std::vector<std::string> workers;   // their names, by number
  std::vector<std::string> missing;   // the names of those that did not answer
  std::vector<v1::Attempt> attempts;  // at the job; it shows the last
  std::optional<Topology> topology;   // none if this version cannot tell
  // FailedPrecondition with the reason if there is nothing to compare with.
  absl::StatusOr<ComparedSteps> compared = absl::FailedPreconditionError("not looked at");
};

// Errors: those of TimelineOf; FailedPrecondition if there is no span in it.
absl::StatusOr<JobTimeline> JobTimelineOf(const v1::GetJobResponse& job,
                                          const v1::GetTimelineResponse& response);

// Describe each side of a comparison, in a line without its end.
std::string MeasuredNote(const ComparedSteps& compared);
std::string PredictedNote(const ComparedSteps& compared);

// Rows for pictures: the measured ones, and below them the predicted ones if there are. `timeline` outlives them.
std::vector<DrawnTimeline> RowsOf(const JobTimeline& timeline);

// ", attempt 2 from step 25 on, no answer from worker-1": what a title says of attempts and of workers that did not
// answer; mostly nothing.
std::string TitleNotes(const JobTimeline& timeline);

// Returns the notes for standard error: why attempts ended, which workers did not answer, and why nothing is predicted.
std::string TimelineNotes(const JobTimeline& timeline);

}  // namespace penstock
