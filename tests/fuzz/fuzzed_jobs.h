// What the fuzz targets of stores write, and what they check of whatever a damaged store still gives.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "services/coordinator/state_store.h"

namespace penstock {

inline constexpr char kFuzzedJobs[][8] = {"gpt-1", "gpt-2", "mlp-1"};

inline SaveJob FuzzedJobOf(const std::string& job_id) {
  SaveJob job{.record = {}, .idempotency_key = absl::StrCat("key of ", job_id)};
  job.record.mutable_summary()->set_job_id(job_id);
  job.record.mutable_summary()->set_state(v1::JOB_STATE_SUCCEEDED);
  return job;
}

// Writes each job with an event and a timeline.
inline void WriteFuzzedJobs(StateStore& store) {
  for (const char* job_id : kFuzzedJobs) {
    const SaveJob job = FuzzedJobOf(job_id);
    PublishEvent event{job_id, {}};
    event.event.set_sequence(1);
    event.event.set_log("began");
    StateStore::Change::Timeline timeline = {job_id, {}};
    timeline.timeline.set_workers(2);
    PENSTOCK_CHECK(store.Write({{.job = &job}, {.event = &event}, {.timeline = &timeline}}).ok());
  }
}

// What the store has of a job is what was written.
inline void CheckFuzzedJob(const StoredJob& job, StateStore& store) {
  const std::string& id = job.record.summary().job_id();
  PENSTOCK_CHECK(std::find(std::begin(kFuzzedJobs), std::end(kFuzzedJobs), id) !=
                 std::end(kFuzzedJobs));
  const SaveJob written = FuzzedJobOf(id);
  PENSTOCK_CHECK(job.record.SerializeAsString() == written.record.SerializeAsString());
  PENSTOCK_CHECK(job.idempotency_key == written.idempotency_key);
  const absl::StatusOr<v1::GetTimelineResponse> timeline = store.ReadTimeline(id);
  PENSTOCK_CHECK(!timeline.ok() || timeline->workers() == 2);
  const absl::StatusOr<std::vector<v1::JobEvent>> events = store.ReadEvents(id, 0, 10);
  PENSTOCK_CHECK(!events.ok() || events->size() <= 1);
  PENSTOCK_CHECK(!events.ok() || events->empty() || events->front().log() == "began");
}

}  // namespace penstock
