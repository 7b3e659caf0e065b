// Program: one worker's actions over a range of microbatches, executed strictly in order.
//
// A range may hold millions of microbatches, so the repeating part is kept once: a program is a
// prologue, `repeats` copies of a period, and an epilogue. Copy k of the period has every microbatch
// shifted by k * `shift`. A program's size depends on the depth of the pipeline only.
//
// Plain values; a cursor belongs to one thread.
#pragma once

#include <cstdint>
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

  friend bool operator==(const Program&, const Program&) = default;
};

// Walks a program from its first action to its last.
class ProgramCursor {
 public:
  // REQUIRES: `program` outlives the cursor and does not change.
  explicit ProgramCursor(const Program& program);

  bool Done() const;
  // REQUIRES: !Done().
  Action Current() const;
  void Advance();
  // Actions passed so far.
  int64_t position() const { return position_; }
  // Completed copies of the period; the interpreter compares states at these points.
  int64_t periods_done() const;

 private:
  const Program* program_;
  int64_t position_ = 0;
};

}  // namespace penstock
