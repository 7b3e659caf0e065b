#include "schedule/collective_clock.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

namespace penstock {

bool CollectiveClock::Perform(const Action& action, absl::Span<const WorkerId> members,
                              absl::Span<int64_t> now_ns) {
  early_windows_.clear();
  if (action.kind == ActionKind::kNorm) {
    CombineNorms(members, now_ns);
    return true;
  }
  if (traffic_.groups.empty()) return false;
  const ReduceGroup& group = topology_.groups[action.index];
  const Traffic::OfGroup& traffic = traffic_.groups[action.index];
  if (!traffic.buckets.empty()) {
    ReduceReplicas(action.group(), now_ns);
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

int64_t CollectiveClock::WholeAt(GroupId id, size_t bucket, WorkerId worker, int64_t now_ns) const {
  const auto pass = last_pass_.find({id.value, worker});
  if (pass == last_pass_.end()) return now_ns;
  const auto duration_ns = static_cast<double>(pass->second.end_ns - pass->second.start_ns);
  const double done = traffic_.groups[id.value].buckets[bucket].done;
  return std::min<int64_t>(now_ns, pass->second.start_ns + std::llround(duration_ns * done));
}

// Each member goes through the same messages in the same order (worker/replica_sum.cc), beside what its worker does.
void CollectiveClock::ReduceReplicas(GroupId id, absl::Span<int64_t> now_ns) {
  const std::vector<StageId>& stages = topology_.groups[id.value].stages;
  const std::vector<Traffic::OfGroup::Bucket>& buckets = traffic_.groups[id.value].buckets;
  const auto worker_of = [&](size_t member) { return topology_.worker(stages[member]); };
  struct Member {
    int64_t at_ns = 0;  // done with the messages so far
    std::optional<int64_t> first_ns;
    std::vector<int64_t> parts_ns,
        sums_ns;  // by bucket: when the last of its parts, or sums, is there
  };
  std::vector<Member> members(stages.size());
  for (size_t i = 0; i < members.size(); ++i) {
    members[i].at_ns = reduced_ns_[worker_of(i).value];
    members[i].parts_ns.resize(buckets.size());
    members[i].sums_ns.resize(buckets.size());
  }
  const auto send = [&](size_t from, size_t to, double bytes,
                        std::vector<int64_t> Member::*there_ns, size_t bucket) {
    if (bytes == 0.0) return;
    Member& sender = members[from];
    if (!sender.first_ns.has_value()) sender.first_ns = sender.at_ns;
    int64_t& there = (members[to].*there_ns)[bucket];
    there = std::max(there, Send(worker_of(from), worker_of(to), bytes, sender.at_ns));
  };
  // To the next one first.
  const auto exchange = [&](size_t bucket, auto bytes_of, std::vector<int64_t> Member::*there_ns) {
    for (size_t distance = 1; distance < stages.size(); ++distance) {
      for (size_t from = 0; from < stages.size(); ++from) {
        const size_t to = (from + distance) % stages.size();
        send(from, to, bytes_of(from, to), there_ns, bucket);
      }
    }
  };
  const auto await = [&](size_t bucket, std::vector<int64_t> Member::*there_ns) {
    for (Member& member : members) {
      member.at_ns = std::max(member.at_ns, (member.*there_ns)[bucket]);
    }
  };
  for (size_t k = 0; k < buckets.size() + 2; ++k) {
    if (k < buckets.size()) {
      for (size_t i = 0; i < members.size(); ++i) {
        const WorkerId worker = worker_of(i);
        members[i].at_ns = std::max(members[i].at_ns, WholeAt(id, k, worker, now_ns[worker.value]));
      }
      exchange(
          k, [&](size_t, size_t to) { return buckets[k].parts[to]; }, &Member::parts_ns);
    }
    if (k >= 1 && k <= buckets.size()) {
      await(k - 1, &Member::parts_ns);
      exchange(
          k - 1, [&](size_t from, size_t) { return buckets[k - 1].parts[from]; }, &Member::sums_ns);
    }
    if (k >= 2) await(k - 2, &Member::sums_ns);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    const WorkerId worker = worker_of(i);
    reduced_ns_[worker.value] = members[i].at_ns;
    now_ns[worker.value] = std::max(now_ns[worker.value], members[i].at_ns);
    if (last_pass_.erase({id.value, worker}) > 0 && members[i].first_ns.has_value()) {
      early_windows_[worker] = {*members[i].first_ns, members[i].at_ns};
    }
  }
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
