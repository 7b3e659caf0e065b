#include "schedule/tied_sum.h"

#include <map>

namespace penstock {
namespace {

using Kind = TiedMessage::Kind;

// The stages of each part of the sum, its replicas in order.
std::vector<std::vector<StageId>> StagesOf(const Topology& topology, const ReduceGroup& group,
                                           const TiedSum& sum) {
  std::vector<std::vector<StageId>> stages;
  for (const int32_t part : sum.parts) {
    std::vector<StageId>& of_part = stages.emplace_back();
    for (const StageId stage : group.stages) {
      if (topology[stage].part == part) of_part.push_back(stage);
    }
  }
  return stages;
}

}  // namespace

std::vector<TiedMessage> MessagesOf(const Topology& topology, const ReduceGroup& group,
                                    const TiedSum& sum) {
  const std::vector<std::vector<StageId>> stages = StagesOf(topology, group, sum);
  std::vector<TiedMessage> messages;
  // Every stage of `to` gets one from a stage of `from`.
  const auto send = [&](Kind kind, size_t from, size_t to) {
    for (size_t replica = 0; replica < stages[to].size(); ++replica) {
      messages.push_back({kind, stages[from][replica % stages[from].size()], stages[to][replica]});
    }
  };
  for (size_t part = stages.size() - 1; part > 0; --part) send(Kind::kLater, part, part - 1);
  if (sum.exchanges) {
    send(Kind::kFirst, 0, 1);
    return messages;
  }
  for (size_t part = 1; part < stages.size(); ++part) send(Kind::kWhole, 0, part);
  std::map<WorkerId, StageId> has_whole;
  for (const StageId first : stages.front()) has_whole.emplace(topology.worker(first), first);
  for (TiedMessage& message : messages) {
    if (message.kind != Kind::kWhole) continue;
    const auto [holder, is_new] = has_whole.emplace(topology.worker(message.to), message.to);
    if (!is_new) message.from = holder->second;
  }
  return messages;
}

}  // namespace penstock
