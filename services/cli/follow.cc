#include "services/cli/follow.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/resolve.h"
#include "services/cli/job_watch.h"
#include "services/cli/next_commands.h"
#include "services/cli/progress.h"
#include "services/cli/progress_display.h"

namespace penstock {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr int64_t kStageReportsIntervalNs = 2'000'000'000;

// Asks for the stages' reports now and then: events do not carry them.
class LiveStages {
 public:
  LiveStages(CoordinatorClient& client, std::string job_id, Clock& clock)
      : client_(client), job_id_(std::move(job_id)), clock_(clock), last_ns_(clock.MonotonicNs()) {}

  void Refresh(Progress& progress) {
    const int64_t now_ns = clock_.MonotonicNs();
    if (now_ns - last_ns_ < kStageReportsIntervalNs) return;
    last_ns_ = now_ns;
    const auto job = client_.GetJob(job_id_);
    if (job.ok()) progress.SetStages(job->result());
  }

 private:
  CoordinatorClient& client_;
  const std::string job_id_;
  Clock& clock_;
  int64_t last_ns_;
};

absl::Status HandleInterrupt(int count, CoordinatorClient& client, const std::string& job_id,
                             ProgressDisplay& display, const FollowOptions& options) {
  if (options.on_interrupt == FollowOptions::OnInterrupt::kDetach) {
    return absl::CancelledError(DetachedText(job_id, client.flags()));
  }
  if (count > 1) return absl::CancelledError("stopped at once; what was not saved is lost");
  display.Note("interrupted: draining to the next step boundary (Ctrl-C again stops at once)");
  return client.CancelJob(job_id).status();
}

}  // namespace

absl::StatusOr<v1::GetJobResponse> FollowJob(CoordinatorClient& client, const std::string& job_id,
                                             Interrupt& interrupt, Console& console, Clock& clock,
                                             const FollowOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse start,
                            AwaitJob(client, job_id, [&] { return interrupt.Count() > 0; }));
  std::vector<int64_t> cuts;
  for (const Cut& cut : CutsOf(start.spec(), /*first_step=*/0, {})) cuts.push_back(cut.step);
  Progress progress(start.summary().steps(), cuts);
  ProgressDisplay display(console, clock);
  JobWatch watch(client, job_id);
  LiveStages reports(client, job_id, clock);
  int interrupts = 0;
  bool enough = false;
  while (!watch.Done()) {
    for (std::optional<v1::JobEvent> event = watch.Next(kTick); event;
         event = watch.Next(absl::ZeroDuration())) {
      const std::string note = progress.Add(*event);
      if (!note.empty()) display.Note(note);
      if (enough || !options.enough(*event)) continue;
      enough = true;
      PENSTOCK_RETURN_IF_ERROR(client.CancelJob(job_id).status());
    }
    PENSTOCK_RETURN_IF_ERROR(options.health());
    if (const std::string news = watch.News(); !news.empty()) display.Note(news);
    if (const int count = interrupt.Count(); count > interrupts) {
      interrupts = count;
      PENSTOCK_RETURN_IF_ERROR(HandleInterrupt(count, client, job_id, display, options));
    }
    reports.Refresh(progress);
    display.Update(progress);
  }
  PENSTOCK_RETURN_IF_ERROR(watch.status());
  if (progress.step() > 0) display.Finish(progress);
  return AwaitJob(client, job_id, [&] { return interrupt.Count() > interrupts; });
}

absl::Status StatusOfEnd(const v1::GetJobResponse& job) {
  switch (job.summary().state()) {
    case v1::JOB_STATE_SUCCEEDED:
      return absl::OkStatus();
    case v1::JOB_STATE_CANCELLED:
      return absl::CancelledError(absl::StrCat("job ", job.summary().job_id(),
                                               " was cancelled after step ", job.summary().step(),
                                               " of ", job.summary().steps()));
    default:
      return absl::UnknownError(
          absl::StrCat("job ", job.summary().job_id(), " failed: ", job.summary().error()));
  }
}

}  // namespace penstock
