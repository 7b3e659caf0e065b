#include "coordinator/recovery_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/attempt_record.h"
#include "coordinator/effects.h"

namespace penstock {
namespace {

constexpr int64_t kFirstPauseMs = 1000;
constexpr int64_t kPauseMaxMs = 60'000;
constexpr int64_t kDoublingsMax = 10;

// An attempt that does what one before it did costs its time for nothing, so the next one may wait as well.
int64_t PauseMs(int64_t without_progress) {
  if (without_progress == 0) return 0;
  return std::min(kPauseMaxMs, kFirstPauseMs << std::min(without_progress - 1, kDoublingsMax));
}

int64_t WaitMs(const v1::RecoverySpec& rules) { return 1000 * rules.wait_seconds(); }

}  // namespace

bool Recovers(const v1::JobSpec& spec) {
  const std::string& mode = spec.recovery().mode();
  return mode.empty() ? !spec.checkpoint().directory().empty() : mode == "auto";
}

bool IsFailure(v1::AttemptCause cause) {
  return cause != v1::ATTEMPT_CAUSE_LEFT && cause != v1::ATTEMPT_CAUSE_NEW_SPLIT &&
         cause != v1::ATTEMPT_CAUSE_GREW && cause != v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED;
}

bool MayEndOtherwise(v1::AttemptCause cause) { return cause != v1::ATTEMPT_CAUSE_WOULD_REPEAT; }

std::string AdviceToGoOn(const v1::JobSpec& spec, const v1::JobResult& result) {
  if (!HasOwnCheckpoint(result, spec.checkpoint())) return "";
  return absl::StrCat(
      "; when that is mended, `penstock submit JOB.yaml --resume latest` goes on from ",
      result.checkpoint());
}

FailedAttempts CountFailures(const google::protobuf::RepeatedPtrField<v1::Attempt>& attempts) {
  FailedAttempts failed;
  int64_t stuck_since_ms = 0;
  for (const v1::Attempt& attempt : attempts) {
    const bool gained = attempt.last_step() > std::max(failed.furthest_step, attempt.first_step());
    failed.furthest_step = std::max(failed.furthest_step, attempt.last_step());
    failed.cause = attempt.cause();
    if (gained) failed.without_progress = 0;
    if (!IsFailure(attempt.cause())) continue;
    ++failed.failures;
    if (gained) continue;
    if (failed.without_progress++ == 0) stuck_since_ms = attempt.detected_ms();
    failed.without_progress_ms = std::max<int64_t>(0, attempt.detected_ms() - stuck_since_ms);
  }
  if (failed.without_progress == 0) failed.without_progress_ms = 0;
  return failed;
}

AfterFailureDecision AfterFailure(const v1::RecoverySpec& rules, const FailedAttempts& failed) {
  if (!MayEndOtherwise(failed.cause))
    return {.why_not = "another attempt would end in the same way"};
  // A network that is broken is mended sooner or later, and no attempt does anything to it.
  const bool may_wait =
      failed.cause == v1::ATTEMPT_CAUSE_UNREACHABLE && failed.without_progress_ms < WaitMs(rules);
  if (failed.without_progress >= rules.no_progress_max() && !may_wait) {
    return {.why_not =
                absl::StrCat(failed.without_progress,
                             " attempts in a row came no further than step ", failed.furthest_step,
                             " (recovery.no_progress_max is ", rules.no_progress_max(), ")")};
  }
  if (failed.failures > rules.restarts_max()) {
    return {.why_not = absl::StrCat(failed.failures,
                                    " attempts at the job have failed (recovery.restarts_max is ",
                                    rules.restarts_max(), ")")};
  }
  return {.pause_ms = PauseMs(failed.without_progress)};
}

AfterFailureDecision AfterFailedSearch(const v1::RecoverySpec& rules, const absl::Status& failure,
                                       const FailedSearches& failed) {
  switch (failure.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnimplemented:
      return {.why_not = "another look would find the same"};
    default:
      break;
  }
  if (failed.since_ms >= WaitMs(rules)) {
    return {.why_not = absl::StrCat("the job has looked ", failed.count, " times in ",
                                    failed.since_ms / 1000, " s (recovery.wait_seconds is ",
                                    rules.wait_seconds(), ")")};
  }
  return {.pause_ms = PauseMs(failed.count)};
}

CrewChoice ChooseCrew(const v1::RecoverySpec& rules, const CrewQuestion& question) {
  if (question.free >= question.needed) return CrewChoice::kAsMany;
  if (question.waited_ms < WaitMs(rules)) return CrewChoice::kWait;
  return question.fewer_do ? CrewChoice::kFewer : CrewChoice::kNone;
}

void AvoidedWorkers::OnBlamed(const std::string& worker, int64_t now_ns) {
  std::deque<int64_t>& times = blamed_ns_[worker];
  times.push_back(now_ns);
  if (times.size() > kBlamesMin) times.pop_front();
}

bool AvoidedWorkers::Has(const std::string& worker, int64_t now_ns) const {
  const auto blamed = blamed_ns_.find(worker);
  return blamed != blamed_ns_.end() && blamed->second.size() == kBlamesMin &&
         blamed->second.front() > now_ns - kWhileMs * kNsPerMs;
}

}  // namespace penstock
