#include "schedule/completeness.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {

OnceEach::OnceEach(ActionKind kind, StageId stage, const Schedule& schedule)
    : schedule_(&schedule),
      op_(kind),
      stage_(stage),
      range_(schedule.range),
      is_done_here_(kind == ActionKind::kForward ? schedule.topology[stage].forward
                                                 : schedule.topology[stage].backward),
      next_(schedule.range.first) {
  Proceed();
}

bool OnceEach::IsHere(int64_t microbatch) const {
  const Topology& topology = schedule_->topology;
  const bool train = schedule_->completeness == Completeness::kTrain;
  return is_done_here_ && (train ? topology.Visits(microbatch, stage_)
                                 : topology.VisitsToEvaluate(microbatch, stage_));
}

void OnceEach::Proceed() {
  for (; next_ < range_.end(); ++next_) {
    if (!IsHere(next_)) continue;
    if (beyond_.Find(next_) == nullptr) return;
    beyond_.Erase(next_);
  }
}

absl::Status OnceEach::Mark(int64_t microbatch) {
  if (microbatch < range_.first || microbatch >= range_.end()) {
    return Error(microbatch,
                 absl::StrCat("is outside of the range ", range_.first, " to ", range_.end() - 1));
  }
  if (microbatch < next_ || beyond_.Find(microbatch) != nullptr) {
    return Error(microbatch, "comes twice");
  }
  beyond_.Insert(microbatch);
  Proceed();
  return absl::OkStatus();
}

absl::Status OnceEach::CheckComplete() const {
  return next_ == range_.end() ? absl::OkStatus() : Error(next_, "is missing");
}

void OnceEach::AppendRelativeState(int64_t origin, std::vector<int64_t>& state) const {
  state.push_back(next_ - origin);
  state.push_back(static_cast<int64_t>(beyond_.size()));
  const auto first = static_cast<int64_t>(state.size());
  beyond_.ForEach([&](int64_t m, Nothing) { state.push_back(m - origin); });
  std::sort(state.begin() + first, state.end());
}

absl::Status OnceEach::Error(int64_t microbatch, absl::string_view problem) const {
  return absl::FailedPreconditionError(
      absl::StrCat(ToString({op_, stage_.value, microbatch}), " ", problem));
}

CompletenessCheck::CompletenessCheck(const Schedule& schedule)
    : train_(schedule.completeness == Completeness::kTrain) {
  for (int32_t id = 0; id < schedule.topology.stages(); ++id) {
    const StageId stage(id);
    const auto once_each = [&](ActionKind kind) { return OnceEach(kind, stage, schedule); };
    stages_.push_back({once_each(ActionKind::kForward), once_each(ActionKind::kBackwardInput),
                       once_each(ActionKind::kBackwardWeight)});
  }
}

absl::Status CompletenessCheck::OnAction(WorkerId, const Action& action, const Effect&, MessageId) {
  ++actions_;
  if (!HasMicrobatch(action.kind)) return absl::OkStatus();
  Stage& stage = stages_[action.index];
  switch (action.kind) {
    case ActionKind::kForward:
      return stage.forward.Mark(action.microbatch);
    case ActionKind::kBackwardInput:
      return stage.backward_input.Mark(action.microbatch);
    case ActionKind::kBackwardWeight:
      if (!stage.backward_weight.DoneBefore(action.microbatch)) {
        return stage.backward_weight.Error(action.microbatch,
                                           "does not come in the order of the microbatches");
      }
      return stage.backward_weight.Mark(action.microbatch);
    default:
      return absl::OkStatus();
  }
}

void CompletenessCheck::OnCollective(const Action&, absl::Span<const WorkerId> members) {
  actions_ += static_cast<int64_t>(members.size());
}

absl::Status CompletenessCheck::CheckComplete() const {
  for (const Stage& stage : stages_) {
    PENSTOCK_RETURN_IF_ERROR(stage.forward.CheckComplete());
    if (!train_) continue;
    PENSTOCK_RETURN_IF_ERROR(stage.backward_input.CheckComplete());
    PENSTOCK_RETURN_IF_ERROR(stage.backward_weight.CheckComplete());
  }
  return absl::OkStatus();
}

void CompletenessCheck::AppendRelativeState(int64_t origin, std::vector<int64_t>& state) const {
  for (const Stage& stage : stages_) {
    stage.forward.AppendRelativeState(origin, state);
    if (!train_) continue;
    stage.backward_input.AppendRelativeState(origin, state);
    stage.backward_weight.AppendRelativeState(origin, state);
  }
}

}  // namespace penstock
