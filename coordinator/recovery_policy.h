// RecoveryPolicy: what a job does after an attempt at it has failed.
//
//   attempt fails -> AfterFailure: ends, or goes on after a pause -> ChooseCrew: on as many workers as it had, on
//   fewer, after waiting for more, or it ends after all.
//
// Failed attempts are counted from the job's record, so a coordinator that is restarted goes on counting.
//
// Pure functions, and AvoidedWorkers, a state machine without clock. Thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "penstock/v1/cluster.pb.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// Returns whether a failed attempt at the job is followed by another: it says so, or is saved and does not refuse it.
bool Recovers(const v1::JobSpec& spec);
// Returns whether the attempt failed, rather than that it was ended for a better one.
bool IsFailure(v1::AttemptCause cause);
// Returns whether another attempt may end otherwise.
bool MayEndOtherwise(v1::AttemptCause cause);

// Returns what to add to the error of a job that has ended: the command that goes on from its last checkpoint. Empty if it has none
// of its own.
std::string AdviceToGoOn(const v1::JobSpec& spec, const v1::JobResult& result);

// What a job's failed attempts come to.
struct FailedAttempts {
  v1::AttemptCause cause = v1::ATTEMPT_CAUSE_UNSPECIFIED;  // of the last
  int64_t failures = 0;
  // How many of them, up to the last, did no step that none before them had done.
  int64_t without_progress = 0;
  int64_t without_progress_ms = 0;  // from the first of these to the last
  int64_t furthest_step = 0;        // of all
};
// REQUIRES: the last attempt failed.
FailedAttempts CountFailures(const google::protobuf::RepeatedPtrField<v1::Attempt>& attempts);

struct AfterFailureDecision {
  std::string why_not;   // the job goes on; empty: it does
  int64_t pause_ms = 0;  // before it is begun again
};
// REQUIRES: the defaults of `rules` are filled in.
AfterFailureDecision AfterFailure(const v1::RecoverySpec& rules, const FailedAttempts& failed);

// The looks for the checkpoint to go on from that have failed, up to the last.
struct FailedSearches {
  int64_t count = 0;     // at least 1
  int64_t since_ms = 0;  // from the first to the last
};
// Returns whether the job looks again: a disk may be away for a while. REQUIRES: as above.
AfterFailureDecision AfterFailedSearch(const v1::RecoverySpec& rules, const absl::Status& failure,
                                       const FailedSearches& failed);

enum class CrewChoice : uint8_t { kAsMany, kFewer, kWait, kNone };

struct CrewQuestion {
  int64_t needed = 0;  // as many workers as it had
  int64_t free = 0;
  bool fewer_do = false;  // with the free ones it would train to the same weights
  int64_t waited_ms = 0;
};
// kNone: it has waited long enough, and ends. REQUIRES: as above.
CrewChoice ChooseCrew(const v1::RecoverySpec& rules, const CrewQuestion& question);

// Workers that were to blame several times in a job, which it takes only where others do not suffice: for a while, since
// what was wrong with them may be over. (It never waits because of that: a job that has no others is better off with them.)
class AvoidedWorkers {
 public:
  static constexpr size_t kBlamesMin = 2;
  static constexpr int64_t kWhileMs = 600'000;

  void OnBlamed(const std::string& worker, int64_t now_ns);
  bool Has(const std::string& worker, int64_t now_ns) const;

 private:
  std::map<std::string, std::deque<int64_t>> blamed_ns_;  // the last kBlamesMin times
};

}  // namespace penstock
