// Collectives: the gradients of parameters that several stages share (the contract is in collectives.h, the order of
// the messages in schedule/tied_sum.h).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "worker/acquire.h"
#include "worker/collectives.h"

namespace penstock {
namespace {

// For two workers that both said they would: NCCL takes some seconds.
constexpr absl::Duration kJoinTimeout = absl::Minutes(1);

// REQUIRES: it is of the group and here.
Stage& MemberOf(const ReduceGroup& group, absl::Span<Stage* const> members, StageId stage) {
  const auto found = std::find(group.stages.begin(), group.stages.end(), stage);
  PENSTOCK_CHECK(found != group.stages.end());
  Stage* const member = members[found - group.stages.begin()];
  PENSTOCK_CHECK(member != nullptr);
  return *member;
}

}  // namespace

Collectives::TiedPlan Collectives::TiedPlanOf(GroupId id, absl::Span<const TieGroup> ties) const {
  const Topology& topology = options_.topology;
  const ReduceGroup& group = topology.groups[id.value];
  const TieGroup& of_group = TieGroupOf(ties, topology, id);
  const auto messages_here = [&](const TiedSum& sum) {
    std::vector<TiedMessage> messages = MessagesOf(topology, group, sum);
    std::erase_if(messages, [&](const TiedMessage& message) {
      return !IsHere(message.from) && !IsHere(message.to);
    });
    return messages;
  };
  TiedPlan plan = {.first = StageId(-1)};
  for (const auto& [tie, sum] : of_group.sums) {
    TiedPlan::Sum& part = plan.sums.emplace_back();
    part.tie = tie;
    part.messages = messages_here(sum);
    // Two parts on one worker have nobody to exchange with.
    part.exchanges =
        sum.exchanges &&
        std::none_of(part.messages.begin(), part.messages.end(), [&](const TiedMessage& message) {
          return IsHere(message.from) && IsHere(message.to);
        });
    if (sum.exchanges && !part.exchanges) {
      part.messages = messages_here({.parts = sum.parts});
    }
    for (const StageId stage : group.stages) {
      if (IsHere(stage) && topology[stage].part == sum.parts.back()) part.lasts.push_back(stage);
    }
    plan.owners.push_back(options_.job.model.ties[tie].owner());
  }
  std::sort(plan.owners.begin(), plan.owners.end());
  plan.owners.erase(std::unique(plan.owners.begin(), plan.owners.end()), plan.owners.end());
  for (const StageId stage : group.stages) {
    if (IsHere(stage) && topology[stage].part == of_group.parts.front()) plan.first = stage;
  }
  for (const TiedMessage& message : messages_here({.parts = of_group.parts})) {
    const bool leaves = topology.worker(message.from) != topology.worker(message.to);
    if (message.kind == TiedMessage::Kind::kWhole && leaves) plan.norms.push_back(message);
  }
  return plan;
}

absl::Status Collectives::ReduceTied(GroupId id, absl::Span<Stage* const> members, Courier& courier,
                                     ActionTimer& timer) {
  const ReduceGroup& group = options_.topology.groups[id.value];
  const TiedPlan& plan = tied_[id.value];
  for (const TiedPlan::Sum& sum : plan.sums) {
    if (sum.messages.empty()) continue;  // of parts that are elsewhere
    if (sum.exchanges) {
      const TiedMessage& any = sum.messages.front();
      Stage& own = MemberOf(group, members, IsHere(any.to) ? any.to : any.from);
      PENSTOCK_RETURN_IF_ERROR(Exchange(sum, own, courier, timer));
    } else {
      PENSTOCK_RETURN_IF_ERROR(AddInTurn(sum, group, members, courier, timer));
    }
  }
  if (options_.job.clip.kind == Clip::Kind::kLayerNorm) {
    PENSTOCK_RETURN_IF_ERROR(ShareOwnerNorms(plan, group, members, courier, timer));
  }
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

absl::Status Collectives::AddInTurn(const TiedPlan::Sum& sum, const ReduceGroup& group,
                                    absl::Span<Stage* const> members, Courier& courier,
                                    ActionTimer& timer) {
  for (const StageId last : sum.lasts) {
    MemberOf(group, members, last).CombineTied(sum.tie, Tensor());
  }
  // What is sent is a copy, because the gradient changes while the transport may still read it; one for all who get it.
  Tensor copy;
  const TiedMessage* copied_for = nullptr;
  for (const TiedMessage& message : sum.messages) {
    if (!IsHere(message.to)) {
      if (copied_for == nullptr || copied_for->kind != message.kind ||
          copied_for->from != message.from) {
        copy = Tensor();  // its memory may be free by now
        const Tensor part = MemberOf(group, members, message.from).TiedGradient(sum.tie);
        PENSTOCK_ASSIGN_OR_RETURN(copy, CopyOf(part.data<float>(), part.shape));
        copied_for = &message;
      }
      PENSTOCK_RETURN_IF_ERROR(SendFloats(LinkToStage(message.to), copy, courier));
      continue;
    }
    copy = Tensor();
    copied_for = nullptr;
    Stage& own = MemberOf(group, members, message.to);
    const Tensor part = own.TiedGradient(sum.tie);
    Tensor other;
    if (IsHere(message.from)) {
      other = MemberOf(group, members, message.from).TiedGradient(sum.tie);
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(
          other, ReceiveFloats(LinkToStage(message.from), part.shape, courier, timer));
    }
    if (message.kind == TiedMessage::Kind::kLater) {
      own.CombineTied(sum.tie, other);
    } else {
      backend_.CopyOnDevice(part.data<void>(), other.data<void>(), part.size_bytes());
    }
  }
  return absl::OkStatus();
}

absl::Status Collectives::Exchange(const TiedPlan::Sum& sum, Stage& own, Courier& courier,
                                   ActionTimer& timer) {
  const bool is_last = !sum.lasts.empty();
  if (is_last) own.CombineTied(sum.tie, Tensor());
  const Tensor part = own.TiedGradient(sum.tie);
  const auto from = std::find_if(sum.messages.begin(), sum.messages.end(),
                                 [&](const TiedMessage& message) { return IsHere(message.to); });
  PENSTOCK_CHECK(from != sum.messages.end());
  Link& link = LinkToStage(from->from);
  // Devices are groups of two: with replicas a part may go to several.
  if (options_.topology.form != Topology::Form::kReplicas) {
    if (!link.agreed) PENSTOCK_RETURN_IF_ERROR(Agree(link, courier, timer));
    if (link.group != nullptr) return SumInGroup(part, link, courier, timer);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor copy, CopyOf(part.data<float>(), part.shape));
  for (const TiedMessage& message : sum.messages) {
    if (IsHere(message.to)) continue;
    PENSTOCK_RETURN_IF_ERROR(SendFloats(LinkToStage(message.to), copy, courier));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor other, ReceiveFloats(link, part.shape, courier, timer));
  if (is_last) {
    backend_.AddInto(part.data<float>(), other.data<float>(), part.shape.elements());
  } else {
    own.CombineTied(sum.tie, other);
  }
  return absl::OkStatus();
}

absl::Status Collectives::Agree(Link& link, Courier& courier, ActionTimer& timer) {
  DeviceGroups* groups = backend_.groups();
  PENSTOCK_ASSIGN_OR_RETURN(
      DevicePair pair,
      JoinPair(groups, options_.worker < link.peer ? 0 : 1, kJoinTimeout,
               [&](const PairMessage& own) -> absl::StatusOr<PairMessage> {
                 PENSTOCK_RETURN_IF_ERROR(SendBytes(link, &own, sizeof(own), courier));
                 PairMessage other;
                 PENSTOCK_RETURN_IF_ERROR(
                     ReceiveBytes(link, &other, sizeof(other), courier, timer));
                 return other;
               }));
  link.agreed = true;
  link.group = std::move(pair.group);
  if (groups == nullptr || !options_.notice) return absl::OkStatus();
  const std::string what =
      absl::StrCat("the tied gradient is summed with worker ", options_.names[link.peer.value]);
  options_.notice(link.group != nullptr
                      ? absl::StrCat(what, " by ", groups->name())
                      : absl::StrCat(what, " over ", link.sender->path(), ": ", pair.why_not));
  return absl::OkStatus();
}

// Both meet before their devices begin, so that no device waits for a worker that is gone.
absl::Status Collectives::SumInGroup(const Tensor& part, Link& link, Courier& courier,
                                     ActionTimer& timer) {
  const int32_t here = 1;
  int32_t there = 0;
  PENSTOCK_RETURN_IF_ERROR(SendBytes(link, &here, sizeof(here), courier));
  PENSTOCK_RETURN_IF_ERROR(ReceiveBytes(link, &there, sizeof(there), courier, timer));
  const absl::Status summed = link.group->AllReduceSum(part.data<float>(), part.shape.elements());
  if (!summed.ok()) return absl::IsUnavailable(summed) ? Blame(link, summed) : summed;
  link.sums.Add(1);
  link.summed_bytes.Add(part.size_bytes());
  return absl::OkStatus();
}

absl::Status Collectives::ShareOwnerNorms(const TiedPlan& plan, const ReduceGroup& group,
                                          absl::Span<Stage* const> members, Courier& courier,
                                          ActionTimer& timer) {
  sent_norms_.resize(plan.owners.size());
  if (plan.first.value >= 0) {
    const LayerRange& layers = options_.layers[plan.first.value];
    const absl::Span<double> norms = absl::MakeSpan(packed_norms_).first(layers.count);
    Stage& first = MemberOf(group, members, plan.first);
    first.CombineUses();
    PENSTOCK_RETURN_IF_ERROR(first.LayerSquaredNorms(norms));
    for (size_t i = 0; i < plan.owners.size(); ++i) {
      sent_norms_[i] = norms[plan.owners[i] - layers.first];
    }
  }
  const auto bytes = static_cast<int64_t>(sent_norms_.size() * sizeof(double));
  for (const TiedMessage& message : plan.norms) {
    PENSTOCK_RETURN_IF_ERROR(
        IsHere(message.from)
            ? SendBytes(LinkToStage(message.to), sent_norms_.data(), bytes, courier)
            : ReceiveBytes(LinkToStage(message.from), sent_norms_.data(), bytes, courier, timer));
  }
  for (size_t i = 0; i < plan.owners.size(); ++i) {
    owner_squared_norms_[plan.owners[i]] = sent_norms_[i];
  }
  return absl::OkStatus();
}

}  // namespace penstock
