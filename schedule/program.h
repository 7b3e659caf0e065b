// Program: one worker's actions over a range of microbatches, executed strictly in order.
//
// A range may hold millions of microbatches, so the repeating part is kept once: a program is a
// prologue, `repeats` copies of a period, and an epilogue. Copy k of the period has every
// microbatch shifted by k * `shift`; prologue and epilogue stand as they are. A program's size
// depends on the depth of the pipeline (and the microbatches of a step), never on the length of the
// range.
//
// Plain values; a cursor belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedule/action.h"

namespace penstock {

using ActionList = std::vector<Action>;

struct Program {
  ActionList prologue;
  ActionList period;
  int64_t repeats = 0;
  int64_t shift = 0;  // microbatches from one copy of the period to the next
  ActionList epilogue;

  // Actions in all, the repeats counted.
  int64_t size() const;
  // The action at `position`, the repeats counted. REQUIRES: 0 <= position < size().
  Action At(int64_t position) const;

  friend bool operator==(const Program&, const Program&) = default;
};

// All actions as one list; for programs known to be short.
ActionList Expand(const Program& program);

// The program of what `list_of` lists for any number of steps, `shift` microbatches each. REQUIRES: steps > 0; lists of many
// steps differ only by what is repeated, once for each step.
Program ProgramOfSteps(int64_t steps, int64_t shift,
                       const std::function<ActionList(int64_t steps)>& list_of);

// Walks a program from its first action to its last.
class ProgramCursor {
 public:
  // REQUIRES: `program` outlives the cursor and does not change.
  explicit ProgramCursor(const Program& program);

  bool Done() const { return part_ == Part::kEnd; }
  // REQUIRES: !Done().
  Action Current() const {
    Action action = (*list_)[index_];
    if (HasMicrobatch(action.kind)) action.microbatch += offset_;
    return action;
  }
  // REQUIRES: !Done().
  void Advance() {
    ++position_;
    if (++index_ == list_->size()) EnterNextPart();
  }
  // Actions passed so far.
  int64_t position() const { return position_; }
  // Completed copies of the period; the verifier compares states at these points.
  int64_t periods_done() const { return periods_done_; }

 private:
  enum class Part : uint8_t { kPrologue, kPeriod, kEpilogue, kEnd };

  // Moves to the first action of the next part (or copy of the period) that is not empty.
  void EnterNextPart();

  const Program* program_;
  Part part_ = Part::kPrologue;
  const ActionList* list_;
  size_t index_ = 0;    // in *list_
  int64_t offset_ = 0;  // to add to the microbatches of *list_
  int64_t periods_done_ = 0;
  int64_t position_ = 0;
};

}  // namespace penstock
