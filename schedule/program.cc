#include "schedule/program.h"

namespace penstock {

int64_t Program::size() const {
  return static_cast<int64_t>(prologue.size() + epilogue.size()) +
         repeats * static_cast<int64_t>(period.size());
}

Action Program::At(int64_t position) const {
  const auto prologue_size = static_cast<int64_t>(prologue.size());
  if (position < prologue_size) return prologue[position];
  position -= prologue_size;
  const auto period_size = static_cast<int64_t>(period.size());
  if (position >= repeats * period_size) return epilogue[position - repeats * period_size];
  Action action = period[position % period_size];
  if (HasMicrobatch(action.kind)) action.microbatch += position / period_size * shift;
  return action;
}

ActionList Expand(const Program& program) {
  ActionList actions;
  for (ProgramCursor cursor(program); !cursor.Done(); cursor.Advance()) {
    actions.push_back(cursor.Current());
  }
  return actions;
}

ProgramCursor::ProgramCursor(const Program& program)
    : program_(&program), list_(&program.prologue) {
  if (list_->empty()) EnterNextPart();
}

void ProgramCursor::EnterNextPart() {
  index_ = 0;
  if (part_ == Part::kPrologue) {
    part_ = Part::kPeriod;
    list_ = &program_->period;
  } else if (part_ == Part::kPeriod) {
    ++periods_done_;
    offset_ += program_->shift;
  }
  if (part_ == Part::kPeriod) {
    if (!list_->empty() && periods_done_ < program_->repeats) return;
    part_ = Part::kEpilogue;
    list_ = &program_->epilogue;
    offset_ = 0;
    if (!list_->empty()) return;
  }
  part_ = Part::kEnd;
}

}  // namespace penstock
