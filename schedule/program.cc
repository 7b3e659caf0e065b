#include "schedule/program.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace penstock {
namespace {

// The same actions with microbatches that are `more` later.
ActionList Later(ActionList list, int64_t more) {
  for (Action& action : list) {
    if (HasMicrobatch(action.kind)) action.microbatch += more;
  }
  return list;
}

// The program of `steps` steps, if the lists of one number of steps and of one more, which are not more than `steps`,
// differ by what repeats itself.
std::optional<Program> Folded(const ActionList& fewer, const ActionList& more, int64_t repeats,
                              int64_t shift) {
  const auto alike = std::mismatch(fewer.begin(), fewer.end(), more.begin(), more.end()).first;
  const int64_t same = alike - fewer.begin();
  const auto length = static_cast<int64_t>(more.size() - fewer.size());
  if (length <= 0 || same < length) return std::nullopt;
  const ActionList period(alike - length, alike);
  const ActionList rest(alike, fewer.end());
  ActionList expected = Later(period, shift);
  const ActionList ending = Later(rest, shift);
  expected.insert(expected.end(), ending.begin(), ending.end());
  if (!std::equal(expected.begin(), expected.end(), more.begin() + same, more.end())) {
    return std::nullopt;
  }
  return Program{.prologue = {fewer.begin(), alike - length},
                 .period = period,
                 .repeats = repeats,
                 .shift = shift,
                 .epilogue = Later(rest, (repeats - 1) * shift)};
}

}  // namespace

Program ProgramOfSteps(int64_t steps, int64_t shift,
                       const std::function<ActionList(int64_t steps)>& list_of) {
  // If only the first step and the last one of a list are unlike the others, lists of three and of four steps differ by one
  // of the others; if more of them are, longer lists do.
  constexpr int64_t kListedMax = 9;
  ActionList fewer = list_of(std::min<int64_t>(steps, 3));
  for (int64_t listed = 4; listed <= steps; ++listed) {
    ActionList more = list_of(listed);
    const std::optional<Program> folded = Folded(fewer, more, steps - listed + 2, shift);
    if (folded.has_value()) return *folded;
    PENSTOCK_CHECK(listed < kListedMax);
    fewer = std::move(more);
  }
  return {.prologue = std::move(fewer), .shift = shift};
}

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
