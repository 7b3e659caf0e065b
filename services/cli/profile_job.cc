#include "services/cli/profile_job.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/cli/command.h"
#include "services/cli/follow.h"
#include "services/cli/job_watch.h"
#include "services/cli/work_display.h"

namespace penstock {
namespace {

constexpr absl::Duration kProfileTick = absl::Milliseconds(100);

void Show(const v1::JobEvent& event, WorkDisplay& display) {
  if (event.has_profile_progress()) {
    const v1::ProfileProgress& progress = event.profile_progress();
    display.Draw(progress.done(), progress.total(),
                 absl::StrCat("worker ", progress.worker(), ": ", progress.what()));
  } else if (event.has_log()) {
    display.Note(event.log());
  } else if (event.state_changed().state() == v1::JOB_STATE_QUEUED &&
             !event.state_changed().reason().empty()) {
    display.Note(event.state_changed().reason());
  }
}

// Until the job has ended.
absl::Status Watch(CoordinatorClient& client, const std::string& job_id, Interrupt& interrupt,
                   WorkDisplay& display) {
  JobWatch watch(client, job_id);
  int interrupts = 0;
  while (!watch.Done()) {
    for (std::optional<v1::JobEvent> event = watch.Next(kProfileTick); event;
         event = watch.Next(absl::ZeroDuration())) {
      Show(*event, display);
    }
    const int count = interrupt.Count();
    if (count == interrupts) continue;
    interrupts = count;
    if (count > 1) return InterruptedError("no longer watching; nothing was written");
    display.Note("interrupted: cancelling the profile (Ctrl-C again stops watching)");
    PENSTOCK_RETURN_IF_ERROR(client.CancelJob(job_id).status());
  }
  return watch.status();
}

}  // namespace

absl::StatusOr<v1::ClusterProfile> ProfileCluster(CoordinatorClient& client,
                                                  const v1::JobSpec& spec,
                                                  const v1::ProfileSpec& profile,
                                                  Interrupt& interrupt, Console& console,
                                                  Clock& clock) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string job_id, client.SubmitProfile(spec, profile));
  console.err << "submitted " << job_id << "\n" << std::flush;
  {
    WorkDisplay display("measurement", console, clock);
    PENSTOCK_RETURN_IF_ERROR(Watch(client, job_id, interrupt, display));
  }
  PENSTOCK_ASSIGN_OR_RETURN(v1::GetJobResponse job, client.GetJob(job_id));
  if (job.summary().state() == v1::JOB_STATE_CANCELLED) {
    return InterruptedError(absl::StrCat("profile ", job_id, " was cancelled after ",
                                         job.summary().step(), " of ", job.summary().steps(),
                                         " measurements; nothing was written"));
  }
  PENSTOCK_RETURN_IF_ERROR(StatusOfEnd(job));
  return std::move(*job.mutable_profile());
}

}  // namespace penstock
