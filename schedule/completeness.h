// CompletenessCheck: whether a run does everything a range asks for, and nothing twice.
//
// Machines cannot see this: a microbatch that is left out on every worker leaves no trace in them.
// Memory is in proportion to what is done out of order.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "schedule/microbatch_table.h"
#include "schedule/run.h"
#include "schedule/schedule.h"

namespace penstock {

// One operation of one stage, which must happen exactly once for every microbatch of a range that goes
// through the stage's pipeline.
class OnceEach {
 public:
  // REQUIRES: `schedule` outlives this.
  OnceEach(ActionKind kind, StageId stage, const Schedule& schedule);

  absl::Status Mark(int64_t microbatch);
  absl::Status CheckComplete() const;
  // True if all before `microbatch` is done.
  bool DoneBefore(int64_t microbatch) const { return next_ >= microbatch; }
  void AppendRelativeState(int64_t origin, std::vector<int64_t>& state) const;

  // FailedPrecondition: "2F5 comes twice".
  absl::Status Error(int64_t microbatch, absl::string_view problem) const;

 private:
  struct Nothing {};

  bool IsHere(int64_t microbatch) const;
  // Goes on to the next microbatch that has not happened and is to happen here.
  void Proceed();

  const Schedule* schedule_;
  ActionKind op_;
  StageId stage_;
  MicrobatchRange range_;
  bool is_done_here_;                // whether the stage does this operation
  int64_t next_;                     // all before it have happened, or happen elsewhere
  MicrobatchTable<Nothing> beyond_;  // the others that have
};

// Follows a run: every stage has one F of every microbatch of its pipeline and, in a train range, one I
// and one W, the W in ascending order; there and back what a stage does of these. Where a stage
// recomputes, the machine's rules make it one R as well: R takes what the only F left, and leaves
// what the only I takes.
class CompletenessCheck : public RunObserver {
 public:
  // REQUIRES: `schedule` outlives this.
  explicit CompletenessCheck(const Schedule& schedule);

  absl::Status OnAction(WorkerId worker, const Action& action, const Effect& effect,
                        MessageId message) override;
  void OnCollective(const Action& action, absl::Span<const WorkerId> members) override;

  // At the end: whether nothing is missing.
  absl::Status CheckComplete() const;

  // See Machine::AppendRelativeState.
  void AppendRelativeState(int64_t origin, std::vector<int64_t>& state) const;

  // Seen so far.
  int64_t actions() const { return actions_; }

 private:
  struct Stage {
    OnceEach forward, backward_input, backward_weight;
  };

  bool train_;
  std::vector<Stage> stages_;
  int64_t actions_ = 0;
};

}  // namespace penstock
