// Blame: which worker failed first.
//
// When one worker goes, its neighbours fail too, and their reports may come first. A failure of a
// worker's own settles the question. A report that only points at a neighbour waits a short grace
// time for that neighbour's own failure or loss; then the worker at the end of the chain of
// pointing is to blame.
//
// A state machine without clock; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

class Blame {
 public:
  static constexpr int32_t kNobody = -1;

  struct Verdict {
    int32_t worker = kNobody;  // index in the plan, or kNobody: the job itself
    std::string message;
    v1::AttemptCause cause = v1::ATTEMPT_CAUSE_UNSPECIFIED;
  };

  explicit Blame(int64_t grace_ns) : grace_ns_(grace_ns) {}

  // `worker` failed by itself, or was lost. Only the first counts.
  void Own(int32_t worker, std::string message,
           v1::AttemptCause cause = v1::ATTEMPT_CAUSE_RUN_FAILED);
  // `worker` failed by itself for a reason that may be the job's: data that are not there, too little memory. Once a second
  // worker says so, too, another attempt would end in the same way.
  void OwnOfJob(int32_t worker, std::string message);
  // `worker` failed because it lost `peer` (kNobody if it cannot tell). Only its first counts.
  void Pointing(int32_t worker, int32_t peer, std::string message, int64_t now_ns);

  // Returns whether anything failed.
  bool any() const { return own_.has_value() || !pointing_.empty(); }
  // Returns when the verdict stands at the latest; nothing if nothing failed.
  std::optional<int64_t> DecideAtNs() const;
  // Returns whether a worker's own failure is known.
  bool settled() const { return own_.has_value(); }
  // Returns who failed first, once that is settled or the grace time is over.
  std::optional<Verdict> Decide(int64_t now_ns) const;
  // Returns who failed first by what is known so far. REQUIRES: any().
  Verdict Best() const;

 private:
  struct Report {
    int32_t peer = kNobody;
    std::string message;
  };

  int64_t grace_ns_;
  std::optional<Verdict> own_;
  std::optional<int32_t> accuses_job_;  // the first worker that does
  std::map<int32_t, Report> pointing_;
  int32_t first_pointing_ = kNobody;
  int64_t first_pointing_ns_ = 0;
};

}  // namespace penstock
