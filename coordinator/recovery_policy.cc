#include "coordinator/recovery_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
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

}  // namespace

bool Recovers(const v1::JobSpec& spec) {
  const std::string& mode = spec.recovery().mode();
  return mode.empty() ? !spec.checkpoint().directory().empty() : mode == "auto";
}

bool IsFailure(v1::AttemptCause cause) {
  return cause != v1::ATTEMPT_CAUSE_LEFT && cause != v1::ATTEMPT_CAUSE_NEW_SPLIT &&
         cause != v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED;
}

bool MayEndOtherwise(v1::AttemptCause cause) {
  return cause != v1::ATTEMPT_CAUSE_WOULD_REPEAT && cause != v1::ATTEMPT_CAUSE_NOT_SAVED;
}

FailedAttempts CountFailures(const google::protobuf::RepeatedPtrField<v1::Attempt>& attempts) {
  FailedAttempts failed;
  for (const v1::Attempt& attempt : attempts) {
    const bool gained = attempt.last_step() > std::max(failed.furthest_step, attempt.first_step());
    failed.furthest_step = std::max(failed.furthest_step, attempt.last_step());
    failed.cause = attempt.cause();
    if (gained) failed.without_progress = 0;
    if (!IsFailure(attempt.cause())) continue;
    ++failed.failures;
    if (!gained) ++failed.without_progress;
  }
  return failed;
}

AfterFailureDecision AfterFailure(const v1::RecoverySpec& rules, const FailedAttempts& failed) {
  if (!MayEndOtherwise(failed.cause))
    return {.why_not = "another attempt would end in the same way"};
  if (failed.without_progress >= rules.no_progress_max()) {
    return {.why_not =
                absl::StrCat(failed.without_progress,
                             " attempts in a row came no further than step ", failed.furthest_step,
                             " (recovery.no_progress_max is ", rules.no_progress_max(), ")")};
  }
  if (failed.failures > rules.restarts_max()) {
    return {.why_not = absl::StrCat("attempt ", failed.failures,
                                    " at the job has failed (recovery.restarts_max is ",
                                    rules.restarts_max(), ")")};
  }
  return {.pause_ms = PauseMs(failed.without_progress)};
}

CrewChoice ChooseCrew(const v1::RecoverySpec& rules, const CrewQuestion& question) {
  if (question.free >= question.needed) return CrewChoice::kAsMany;
  if (question.waited_ms < 1000 * rules.wait_seconds()) return CrewChoice::kWait;
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
