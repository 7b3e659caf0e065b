#include "schedule/flight_rules.h"

namespace penstock {

absl::string_view NameOf(Holdings holdings) {
  if (holdings & kInput) return "input";
  if (holdings & kOutput) return "output";
  if (holdings & kStash) return "stash";
  if (holdings & kOutputGradient) return "output gradient";
  if (holdings & kWeightStash) return "weight stash";
  if (holdings & kInputGradient) return "input gradient";
  if (holdings & kCheckpoint) return "checkpoint";
  return holdings & kLeavingStash ? "stash that is being offloaded" : "offloaded stash";
}

FlightRule FlightRules::Of(ActionKind kind, StageId stage, bool train) const {
  const StageWiring& row = topology_[stage];
  FlightRule rule;
  switch (kind) {
    case ActionKind::kRecvActivation:
      rule.leaves = kInput;
      break;
    case ActionKind::kForward:
      if (!row.forward) rule.refusal = "the stage does backwards only";
      rule.takes = row.first ? 0 : kInput;
      rule.reads_weights = true;
      if (train && row.backward) rule.leaves = row.recomputes ? kCheckpoint : kStash;
      if (train && !row.backward) {
        HandOn(EdgeKind::kCheckpoint, stage, kCheckpoint, kCheckpoint, rule, rule.hands[1]);
      }
      HandOn(EdgeKind::kActivation, stage, kOutput, kInput, rule, rule.hands[0]);
      break;
    case ActionKind::kSendActivation:
      rule.takes = kOutput;
      break;
    case ActionKind::kRecvGradient:
      rule.leaves = kOutputGradient;
      break;
    case ActionKind::kRecompute:
      if (!row.recomputes) rule.refusal = "the stage does not recompute";
      rule.takes = row.ends_way_back ? 0 : kCheckpoint;
      rule.leaves = kStash;
      rule.reads_weights = true;
      break;
    case ActionKind::kBackwardInput:
      if (!row.backward) rule.refusal = "the stage does forwards only";
      rule.takes = row.last ? kStash : kStash | kOutputGradient;
      rule.reads_weights = true;
      rule.leaves = kWeightStash;
      HandOn(EdgeKind::kGradient, stage, kInputGradient, kOutputGradient, rule, rule.hands[0]);
      break;
    case ActionKind::kBackwardWeight:
      if (!row.backward) rule.refusal = "the stage does forwards only";
      rule.takes = kWeightStash;
      break;
    case ActionKind::kSendGradient:
      rule.takes = kInputGradient;
      break;
    case ActionKind::kSendCheckpoint:
      rule.takes = kCheckpoint;
      break;
    case ActionKind::kRecvCheckpoint:
      rule.leaves = kCheckpoint;
      break;
    case ActionKind::kOffload:
      rule.takes = kStash;
      rule.leaves = kLeavingStash;
      break;
    case ActionKind::kEvict:
      rule.takes = kLeavingStash;
      rule.leaves = kOffloadedStash;
      break;
    case ActionKind::kPrefetch:
      rule.takes = kOffloadedStash;
      rule.leaves = kStash;
      break;
    default:
      break;  // not of one microbatch, or of a sum
  }
  // Of any microbatch: where it depends on the microbatch, all neighbours are on other workers.
  if (IsReceive(kind)) rule.refusal = RefuseMessage(topology_.From(KindOf(kind), stage, 0));
  if (IsSend(kind)) rule.refusal = RefuseMessage(topology_.To(KindOf(kind), stage, 0));
  const bool evaluates = kind == ActionKind::kRecvActivation || kind == ActionKind::kForward ||
                         kind == ActionKind::kSendActivation;
  if (!train && !evaluates) rule.refusal = "not in an evaluate range";
  return rule;
}

absl::string_view FlightRules::RefuseMessage(StageId neighbour) const {
  if (neighbour.value < 0) return "there is no stage on that side";
  if (IndexOf(neighbour) >= 0) return "the neighbour is on the same worker, there is no message";
  return "";
}

void FlightRules::HandOn(EdgeKind kind, StageId stage, Holdings sent, Holdings received,
                         FlightRule& rule, FlightRule::Handover& hand) const {
  const StageId to = topology_.To(kind, stage, 0);
  if (to.value < 0) return;
  if (IndexOf(to) >= 0) {
    hand = {IndexOf(to), received};
  } else {
    rule.leaves |= sent;
  }
}

}  // namespace penstock
