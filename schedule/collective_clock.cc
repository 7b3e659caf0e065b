#include "schedule/collective_clock.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock {

bool CollectiveClock::Perform(const Action& action, absl::Span<const WorkerId> members,
                              absl::Span<int64_t> now_ns) {
  if (action.kind == ActionKind::kNorm) {
    CombineNorms(members, now_ns);
    return true;
  }
  if (traffic_.groups.empty()) return false;
  const ReduceGroup& group = topology_.groups[action.index];
  const Traffic::OfGroup& traffic = traffic_.groups[action.index];
  if (!traffic.parts.empty()) {
    ReduceReplicas(group, traffic.parts, now_ns);
  } else if (group.operation == ReduceGroup::Operation::kCopy) {
    CopyWeights(group, traffic.copied, now_ns);
  } else if (topology_.IsOfTies(group)) {
    for (const Traffic::OfGroup::Tied& tied : traffic.tied) ReduceTied(group, tied, now_ns);
  } else {
    return false;
  }
  return true;
}

int64_t CollectiveClock::Send(WorkerId from, WorkerId to, double bytes, int64_t at_ns) {
  if (from == to) return at_ns;
  sent_bytes_[from.value] += bytes;
  const LinkSpeed& link = links_.Between(from, to);
  int64_t& free_ns = free_ns_[{from, to}];
  int64_t left_ns = std::max(free_ns, at_ns);
  if (cards_ != nullptr) left_ns = cards_->Leave(from, bytes, left_ns);
  free_ns = left_ns + std::llround(bytes / link.bytes_per_second * 1e9);
  int64_t there_ns = free_ns;
  if (cards_ != nullptr) there_ns = std::max(there_ns, cards_->Arrive(to, bytes, left_ns));
  return there_ns + std::llround(link.latency_s * 1e9);
}

void CollectiveClock::ReduceReplicas(const ReduceGroup& group, absl::Span<const double> parts,
                                     absl::Span<int64_t> now_ns) {
  const std::vector<StageId>& stages = group.stages;
  const auto exchange = [&](auto bytes_of) {
    const std::vector<int64_t> begin_ns(now_ns.begin(), now_ns.end());
    for (size_t distance = 1; distance < stages.size(); ++distance) {
      for (size_t from = 0; from < stages.size(); ++from) {
        const size_t to = (from + distance) % stages.size();
        if (bytes_of(from, to) == 0.0) continue;
        const WorkerId sender = topology_.worker(stages[from]);
        const WorkerId receiver = topology_.worker(stages[to]);
        const int64_t there_ns = Send(sender, receiver, bytes_of(from, to), begin_ns[sender.value]);
        now_ns[receiver.value] = std::max(now_ns[receiver.value], there_ns);
      }
    }
  };
  exchange([&](size_t, size_t to) { return parts[to]; });
  exchange([&](size_t from, size_t) { return parts[from]; });
}

void CollectiveClock::ReduceTied(const ReduceGroup& group, const Traffic::OfGroup::Tied& tied,
                                 absl::Span<int64_t> now_ns) {
  const std::vector<int64_t> begin_ns(now_ns.begin(), now_ns.end());
  for (const TiedMessage& message : MessagesOf(topology_, group, tied.sum)) {
    const WorkerId from = topology_.worker(message.from);
    const WorkerId to = topology_.worker(message.to);
    const int64_t at_ns = tied.sum.exchanges ? begin_ns[from.value] : now_ns[from.value];
    now_ns[to.value] = std::max(now_ns[to.value], Send(from, to, tied.bytes, at_ns));
  }
}

void CollectiveClock::CopyWeights(const ReduceGroup& group, double bytes,
                                  absl::Span<int64_t> now_ns) {
  const auto updater = std::find_if(group.stages.begin(), group.stages.end(),
                                    [this](StageId stage) { return topology_[stage].updates; });
  const WorkerId from = topology_.worker(*updater);
  std::set<WorkerId> served = {from};  // a worker may have several of the stages
  for (const StageId stage : group.stages) {
    const WorkerId to = topology_.worker(stage);
    if (!served.insert(to).second) continue;
    now_ns[to.value] = std::max(now_ns[to.value], Send(from, to, bytes, now_ns[from.value]));
  }
}

void CollectiveClock::CombineNorms(absl::Span<const WorkerId> members, absl::Span<int64_t> now_ns) {
  const std::vector<int64_t> begin_ns(now_ns.begin(), now_ns.end());
  for (const WorkerId from : members) {
    const double bytes = traffic_.norms.empty() ? 0.0 : traffic_.norms[from.value];
    if (!traffic_.norms.empty() && bytes == 0.0) continue;
    for (const WorkerId to : members) {
      const int64_t there_ns = Send(from, to, bytes, begin_ns[from.value]);
      now_ns[to.value] = std::max(now_ns[to.value], there_ns);
    }
  }
}

}  // namespace penstock
