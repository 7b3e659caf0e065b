#include "services/worker/run_desk.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/seen_epoch.h"
#include "base/status.h"

namespace penstock {
namespace {

// Jobs whose epochs are remembered.
constexpr size_t kRememberedJobsMax = 64;

std::string NameOf(const std::string& job_id, int64_t epoch) {
  return absl::StrCat("run of job ", job_id, ", epoch ", epoch);
}

struct RunName {
  std::string job_id;
  int64_t epoch = 0;
};

RunName NameOf(const RunRequest& request) {
  return std::visit(
      [](const auto& typed) {
        return RunName{typed.job_id(), typed.epoch()};
      },
      request);
}

bool AreSame(const RunRequest& a, const RunRequest& b) {
  return std::visit(
      [](const auto& left, const auto& right) {
        if constexpr (std::is_same_v<decltype(left), decltype(right)>) {
          return google::protobuf::util::MessageDifferencer::Equals(left, right);
        } else {
          return false;
        }
      },
      a, b);
}

}  // namespace

// -------------------------------------------------------------------------------- control calls

absl::StatusOr<RunDesk::AttemptRef> RunDesk::MakeRoom(const RunRequest& request) {
  const auto [job_id, epoch] = NameOf(request);
  PENSTOCK_RETURN_IF_ERROR(closed_);
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(job_id, epoch));
  if (Has(job_id, epoch) || !IsActive()) return nullptr;
  AskToStop(*attempt_, absl::StrCat("the worker was given the ", NameOf(job_id, epoch)));
  return attempt_;
}

absl::StatusOr<RunDesk::AttemptRef> RunDesk::TakeUp(const RunRequest& request,
                                                    const std::optional<TraceContext>& trace) {
  const auto [job_id, epoch] = NameOf(request);
  PENSTOCK_RETURN_IF_ERROR(closed_);
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(job_id, epoch));
  if (Has(job_id, epoch)) {
    if (!AreSame(attempt_->request, request)) return OtherOfItsEpoch(job_id, epoch);
    return attempt_;
  }
  if (IsActive()) return absl::AbortedError("the worker was given another run meanwhile");
  Fence(job_id, /*first=*/epoch, /*seen=*/epoch);
  attempt_ = std::make_shared<Attempt>();
  attempt_->request = request;
  attempt_->job_id = job_id;
  attempt_->epoch = epoch;
  attempt_->trace = trace;
  return attempt_;
}

absl::StatusOr<v1::PrepareRunResponse> RunDesk::AnswerOf(const Attempt& attempt) {
  if (!attempt.prepared) return attempt.outcome;
  return attempt.response;
}

absl::Status RunDesk::Start(const std::string& job_id, int64_t epoch) {
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(job_id, epoch));
  if (!Has(job_id, epoch) || !attempt_->prepared) {
    return absl::FailedPreconditionError(absl::StrCat(NameOf(job_id, epoch), ": not prepared"));
  }
  if (attempt_->phase == Phase::kPrepared && attempt_->stop.ok()) {
    attempt_->phase = Phase::kStarting;
    attempt_->started = true;
  }
  // It may have ended since: then the answer of the call that started it was lost.
  return attempt_->started ? absl::OkStatus() : attempt_->stop;
}

absl::StatusOr<Run*> RunDesk::FindToHold(const std::string& job_id, int64_t epoch) {
  PENSTOCK_ASSIGN_OR_RETURN(Run* const run, FindRunning(job_id, epoch));
  attempt_->held = true;
  return run;
}

absl::StatusOr<Run*> RunDesk::FindRunning(const std::string& job_id, int64_t epoch) const {
  PENSTOCK_RETURN_IF_ERROR(CheckEpoch(job_id, epoch));
  if (!Has(job_id, epoch) || attempt_->run == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(job_id, epoch), ": not executing on this worker"));
  }
  return attempt_->run;
}

RunDesk::AttemptRef RunDesk::Stop(const std::string& job_id, int64_t epoch,
                                  const std::string& reason) {
  // A PrepareRun that comes late must not bring it back.
  Fence(job_id, /*first=*/std::min(epoch, kEpochMax) + 1, /*seen=*/epoch);
  if (!IsActive() || attempt_->job_id != job_id || attempt_->epoch > epoch) return nullptr;
  AskToStop(*attempt_, reason);
  return attempt_;
}

absl::StatusOr<Timeline> RunDesk::RecentTimeline(const std::string& job_id) const {
  if (attempt_ == nullptr || attempt_->job_id != job_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id, " is not the last one that this worker ran"));
  }
  return attempt_->run == nullptr ? attempt_->timeline : attempt_->run->RecentTimeline();
}

void RunDesk::Close(const std::string& reason) {
  if (closed_.ok()) closed_ = absl::UnavailableError(reason);
  if (IsActive()) AskToStop(*attempt_, reason);
}

// ------------------------------------------------------------------------------------- executor

RunDesk::Work RunDesk::NextWork() {
  if (!IsActive()) return Work::kNone;
  if (!attempt_->stop.ok()) return Work::kDiscard;
  if (attempt_->phase == Phase::kPreparing) return Work::kPrepare;
  if (attempt_->phase != Phase::kStarting) return Work::kNone;
  attempt_->phase = Phase::kRunning;
  return Work::kExecute;
}

void RunDesk::SetPrepared(Attempt& attempt, Run& run) {
  attempt.run = &run;
  attempt.response.set_schedule_digest(run.schedule_digest());
  attempt.response.set_memory_bytes(run.memory_bytes());
  attempt.prepared = true;
  attempt.phase = Phase::kPrepared;
}

void RunDesk::TakeRunAway(Attempt& attempt, const Run* run) {
  attempt.run = nullptr;
  if (run == nullptr) return;
  attempt.actions_done = run->actions_done();
  attempt.stages = run->Reports();
  attempt.timeline = run->RecentTimeline();
}

void RunDesk::End(Attempt& attempt, const absl::Status& outcome) {
  attempt.phase = Phase::kEnded;
  attempt.outcome = attempt.stop.ok() ? outcome : attempt.stop;
}

// --------------------------------------------------------------------------------------- epochs

absl::Status RunDesk::CheckEpoch(const std::string& job_id, int64_t epoch) const {
  for (const JobEpochs& known : epochs_) {
    if (known.job_id == job_id && epoch < known.first) {
      rejected_.Count(Rejection::kStaleEpoch);
      return WithSeenEpoch(
          absl::AbortedError(absl::StrCat(
              NameOf(job_id, epoch), ": over on this worker, which has seen epoch ", known.seen)),
          known.seen);
    }
  }
  return absl::OkStatus();
}

absl::Status RunDesk::OtherOfItsEpoch(const std::string& job_id, int64_t epoch) const {
  rejected_.Count(Rejection::kStaleEpoch);
  return WithSeenEpoch(absl::AbortedError(absl::StrCat(
                           NameOf(job_id, epoch),
                           ": this worker knows another attempt of that epoch, perhaps "
                           "of a coordinator that lost its records; expected a later one")),
                       epoch);
}

void RunDesk::Fence(const std::string& job_id, int64_t first, int64_t seen) {
  JobEpochs epochs = {.job_id = job_id, .first = first, .seen = seen};
  std::erase_if(epochs_, [&](const JobEpochs& known) {
    if (known.job_id != job_id) return false;
    epochs.first = std::max(epochs.first, known.first);
    epochs.seen = std::max(epochs.seen, known.seen);
    return true;
  });
  if (epochs_.size() >= kRememberedJobsMax) epochs_.erase(epochs_.begin());
  epochs_.push_back(std::move(epochs));
}

void RunDesk::AskToStop(Attempt& attempt, const std::string& reason) {
  if (attempt.stop.ok()) attempt.stop = absl::AbortedError(reason);
  if (attempt.run != nullptr) attempt.run->Stop(reason);
}

}  // namespace penstock
