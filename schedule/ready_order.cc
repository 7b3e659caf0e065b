#include "schedule/ready_order.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {
namespace {

// Lowers a block or an update by itself.
ActionList Lowered(const ActionList& compute, const Topology& topology, WorkerId worker,
                   const LowerOptions& options) {
  Program program;
  program.prologue = compute;
  return Lower(program, topology, worker, options).prologue;
}

// The message that `actions` receives, if any.
const Action* ReceiveOf(const ActionList& actions) {
  const auto receive = std::find_if(actions.begin(), actions.end(),
                                    [](const Action& action) { return IsReceive(action.kind); });
  return receive == actions.end() ? nullptr : &*receive;
}

}  // namespace

ReadyOrder::ReadyOrder(const Topology& topology, WorkerId worker, const Options& options)
    : whole_(options.range),
      replicated_(topology.form == Topology::Form::kReplicas),
      count_(options.range.count),
      microbatches_per_update_(options.microbatches_per_update),
      drains_(options.drains) {
  PENSTOCK_CHECK(microbatches_per_update_ > 0 && count_ % microbatches_per_update_ == 0);
  const std::vector<StageId> ids = topology.StagesOf(worker);
  replicas_ = topology[ids.front()].replicas;
  replica_ = topology[ids.front()].replica;
  PENSTOCK_CHECK(count_ % replicas_ == 0);
  count_ /= replicas_;
  microbatches_per_update_ = std::max<int64_t>(1, microbatches_per_update_ / replicas_);
  const auto index_of = [&ids](StageId stage) {
    const auto found = std::find(ids.begin(), ids.end(), stage);
    return found == ids.end() ? -1 : static_cast<int32_t>(found - ids.begin());
  };
  const auto lowered = [&](const ActionList& compute) {
    return Lowered(compute, topology, worker, options.lower);
  };
  ActionList steps;
  for (const StageId id : ids) {
    const int64_t in_flight_max = options.in_flight_max[id.value];
    PENSTOCK_CHECK(in_flight_max >= 1);
    const Action step = {ActionKind::kUpdate, id.value};
    steps.push_back(step);
    stages_.push_back({.id = id,
                       .first = topology[id].first,
                       .last = topology[id].last,
                       .previous = index_of(topology.From(EdgeKind::kActivation, id, 0)),
                       .next = index_of(topology.To(EdgeKind::kActivation, id, 0)),
                       .in_flight_max = in_flight_max,
                       .forward = lowered({{ActionKind::kForward, id.value}}),
                       .backward = lowered({{ActionKind::kBackwardInput, id.value},
                                            {ActionKind::kBackwardWeight, id.value}}),
                       .update = lowered({step})});
  }
  update_ = lowered(steps);
}

std::optional<OrderBlock> ReadyOrder::Next(const Moment& moment) const {
  const Stage* backward = nullptr;
  const Stage* forward = nullptr;
  // From the last stage on, so that of equally old blocks its own is found first.
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    if ((backward == nullptr || stage->backwards < backward->backwards) &&
        BackwardIsReady(*stage, moment)) {
      backward = &*stage;
    }
  }
  if (backward != nullptr) return OrderBlock{backward->id, /*backward=*/true};
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    if ((forward == nullptr || stage->forwards < forward->forwards) &&
        ForwardIsReady(*stage, moment)) {
      forward = &*stage;
    }
  }
  if (forward != nullptr) return OrderBlock{forward->id, /*backward=*/false};
  return std::nullopt;
}

bool ReadyOrder::BackwardIsReady(const Stage& stage, const Moment& moment) const {
  if (stage.backwards == stage.forwards) return false;
  if (stage.last) return true;
  if (stage.next >= 0) return stages_[stage.next].backwards > stage.backwards;
  return InputIsThere(stage.backward, stage.backwards, moment);
}

bool ReadyOrder::ForwardIsReady(const Stage& stage, const Moment& moment) const {
  const int64_t next = stage.forwards;
  if (next == count_ || next - stage.backwards >= stage.in_flight_max) return false;
  if (drains_) {
    // Its step is open once the one before is done on all of this worker's stages.
    const int64_t opened_by = next / microbatches_per_update_ * microbatches_per_update_;
    for (const Stage& other : stages_) {
      if (other.backwards < opened_by) return false;
    }
  }
  if (stage.previous >= 0 && stages_[stage.previous].forwards == next) return false;
  return InputIsThere(stage.forward, next, moment) && moment.version_is_made(stage.id);
}

bool ReadyOrder::InputIsThere(const ActionList& actions, int64_t n, const Moment& moment) const {
  const Action* receive = ReceiveOf(actions);
  if (receive == nullptr) return true;
  Action message = *receive;
  if (replicated_) message.microbatch = MicrobatchAt(n);
  return moment.message_waits(message);
}

int64_t ReadyOrder::MicrobatchOf(const OrderBlock& block) const {
  const Stage& stage = stages_[IndexOf(block.stage)];
  return MicrobatchAt(block.backward ? stage.backwards : stage.forwards);
}

absl::Span<const Action> ReadyOrder::ActionsOf(const OrderBlock& block) const {
  const Stage& stage = stages_[IndexOf(block.stage)];
  return block.backward ? stage.backward : stage.forward;
}

absl::Span<const Action> ReadyOrder::Done(const OrderBlock& block) {
  Stage& stage = stages_[IndexOf(block.stage)];
  if (!block.backward) {
    ++stage.forwards;
    return {};
  }
  const int64_t done = ++stage.backwards;
  if (done % microbatches_per_update_ != 0) return {};
  if (!drains_) return stage.update;
  const bool all_done = std::all_of(stages_.begin(), stages_.end(),
                                    [done](const Stage& each) { return each.backwards == done; });
  return all_done ? absl::MakeConstSpan(update_) : absl::Span<const Action>();
}

void ReadyOrder::Shorten(int64_t microbatches) {
  PENSTOCK_CHECK(microbatches % replicas_ == 0);
  const int64_t here = microbatches / replicas_;
  PENSTOCK_CHECK(here <= count_ && here % microbatches_per_update_ == 0);
  for (const Stage& stage : stages_) PENSTOCK_CHECK(stage.forwards <= here);
  count_ = here;
}

bool ReadyOrder::finished() const {
  return std::all_of(stages_.begin(), stages_.end(),
                     [this](const Stage& stage) { return stage.backwards == count_; });
}

ActionList ReadyOrder::FullestOrder() const {
  ActionList order;
  const auto add = [&order](const ActionList& block) {
    order.insert(order.end(), block.begin(), block.end());
  };
  for (const Stage& stage : stages_) {
    for (int64_t i = 0; i < stage.in_flight_max; ++i) add(stage.forward);
  }
  // Full, each stage once passes the most that a pass takes for its time.
  for (const Stage& stage : stages_) {
    add(stage.backward);
    add(stage.forward);
  }
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    for (int64_t i = 0; i < stage->in_flight_max; ++i) add(stage->backward);
  }
  add(update_);
  return order;
}

size_t ReadyOrder::IndexOf(StageId stage) const {
  const auto found = std::find_if(stages_.begin(), stages_.end(),
                                  [&](const Stage& each) { return each.id == stage; });
  PENSTOCK_CHECK(found != stages_.end());
  return found - stages_.begin();
}

}  // namespace penstock
