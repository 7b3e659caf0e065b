#include "schedule/costs_ns.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

int64_t ToNs(double seconds) { return std::llround(seconds * 1e9); }

absl::Status CheckTime(double seconds, absl::string_view what) {
  constexpr double kSecondsMax = 1e6;
  if (seconds >= 0 && seconds <= kSecondsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " must lie between 0 and ", kSecondsMax, " seconds, got ", seconds));
}

absl::Status CheckStage(const StageCosts& stage) {
  PENSTOCK_RETURN_IF_ERROR(CheckTime(stage.forward_s, "forward time"));
  PENSTOCK_RETURN_IF_ERROR(
      CheckTime(stage.recompute_s.value_or(stage.forward_s), "recompute time"));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(stage.backward_input_s, "backward-input time"));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(stage.backward_weight_s, "backward-weight time"));
  return CheckTime(stage.update_s, "update time");
}

absl::Status CheckLink(const LinkCosts& link) {
  if (!(link.bytes_per_second > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes per second must be positive, got ", link.bytes_per_second));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckTime(link.bytes / link.bytes_per_second, "transfer time"));
  return CheckTime(link.latency_s, "latency");
}

absl::Status CheckSpeed(const LinkSpeed& link, double bytes) {
  return CheckLink(
      {.bytes = bytes, .bytes_per_second = link.bytes_per_second, .latency_s = link.latency_s});
}

// The largest message of any kind.
double LargestMessage(const Traffic& traffic) {
  double largest = traffic.boundary;
  for (const Traffic::OfStage& stage : traffic.stages) {
    largest = std::max({largest, stage.output, stage.grad_input, stage.input});
  }
  for (const double bytes : traffic.norms) largest = std::max(largest, bytes);
  for (const double bytes : traffic.sums) largest = std::max(largest, bytes);
  for (const double bytes : traffic.weights) largest = std::max(largest, bytes);
  largest = std::max(largest, traffic.request);
  for (const Traffic::OfGroup& group : traffic.groups) {
    largest = std::max(largest, group.copied);
    for (const Traffic::OfGroup::Tied& tied : group.tied) largest = std::max(largest, tied.bytes);
    for (const Traffic::OfGroup::Bucket& bucket : group.buckets) {
      for (const double bytes : bucket.parts) largest = std::max(largest, bytes);
    }
  }
  return largest;
}

}  // namespace

double Traffic::BytesOf(const Action& send) const {
  if (send.kind == ActionKind::kSendSum) return sums.empty() ? 0.0 : sums[send.index];
  if (send.kind == ActionKind::kSendWeights) return weights.empty() ? 0.0 : weights[send.index];
  if (send.kind == ActionKind::kSendRequest) return request;
  if (stages.empty()) return boundary;
  const OfStage& stage = stages[send.index];
  return send.kind == ActionKind::kSendActivation ? stage.output
         : send.kind == ActionKind::kSendGradient ? stage.grad_input
                                                  : stage.input;
}

absl::StatusOr<std::shared_ptr<const CostsNs::Pairs>> CostsNs::PairsFrom(
    const SimulationCosts& costs, const Topology& topology) {
  const Traffic& traffic = costs.traffic;
  const auto stages = static_cast<size_t>(topology.stages());
  if (!costs.links.empty() || (!traffic.sums.empty() && traffic.sums.size() != stages) ||
      (!traffic.weights.empty() && traffic.weights.size() != stages)) {
    return absl::InvalidArgumentError(
        "expected links between workers or between stages, and the bytes of sums and of streamed "
        "weights for all stages");
  }
  if (!traffic.groups.empty() && traffic.groups.size() != topology.groups.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected the bytes of ", topology.groups.size(),
                                                   " groups (or none), got ",
                                                   traffic.groups.size()));
  }
  for (size_t group = 0; group < traffic.groups.size(); ++group) {
    for (const Traffic::OfGroup::Bucket& bucket : traffic.groups[group].buckets) {
      const size_t stages = topology.groups[group].stages.size();
      if (bucket.parts.size() != stages) {
        return absl::InvalidArgumentError(absl::StrCat("group ", group, " has ", stages,
                                                       " stages, but bytes of ",
                                                       bucket.parts.size(), " parts"));
      }
      if (!(bucket.done >= 0.0 && bucket.done <= 1.0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("group ", group, " has a bucket that is whole after ", bucket.done,
                         " of a pass; expected a number from 0 to 1"));
      }
    }
  }
  const double largest = LargestMessage(traffic);
  PENSTOCK_RETURN_IF_ERROR(CheckSpeed(costs.worker_links->others, largest));
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(CheckSpeed({.bytes_per_second = costs.worker_links->card_bytes_per_second}, largest),
               "network cards"));
  for (const auto& [pair, link] : costs.worker_links->pairs) {
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(CheckSpeed(link, largest),
                 absl::StrCat("link between workers ", pair.first, " and ", pair.second)));
  }
  return std::make_shared<const Pairs>(
      Pairs{.topology = topology, .links = *costs.worker_links, .traffic = traffic});
}

const LinkSpeed& CostsNs::SpeedOf(const Action& send) const {
  const Topology& topology = pairs_->topology;
  const Edge& edge = topology.edges[topology.EdgeOf(send)];
  return pairs_->links.Between(topology.worker(edge.from), topology.worker(edge.to));
}

int64_t CostsNs::TransferBetweenWorkers(const Action& send) const {
  return ToNs(pairs_->traffic.BytesOf(send) / SpeedOf(send).bytes_per_second);
}

int64_t CostsNs::LatencyBetweenWorkers(const Action& send) const {
  return ToNs(SpeedOf(send).latency_s);
}

absl::StatusOr<CostsNs> CostsNs::From(const SimulationCosts& costs, const Topology& topology) {
  const int32_t stages = topology.stages();
  const int32_t links = topology.links();
  const auto check_size = [](size_t size, int32_t expected, absl::string_view what) {
    if (size == 0 || static_cast<int32_t>(size) == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("expected costs of ", expected, " ", what, " (or none), got ", size));
  };
  PENSTOCK_RETURN_IF_ERROR(check_size(costs.stages.size(), stages, "stages"));
  PENSTOCK_RETURN_IF_ERROR(check_size(costs.links.size(), links, "links"));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(costs.overhead_s, "overhead"));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(costs.collective_s, "collective time"));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(costs.sum_s, "time of a sum of gradients"));
  CostsNs result;
  for (int32_t s = 0; s < stages; ++s) {
    const StageCosts stage = costs.stages.empty() ? StageCosts() : costs.stages[s];
    PENSTOCK_RETURN_IF_ERROR(Annotate(CheckStage(stage), absl::StrCat("stage ", s)));
    for (const double speed :
         {costs.host.offload_bytes_per_second, costs.host.prefetch_bytes_per_second}) {
      PENSTOCK_RETURN_IF_ERROR(Annotate(CheckSpeed({.bytes_per_second = speed}, stage.stash_bytes),
                                        absl::StrCat("stash of stage ", s)));
      PENSTOCK_RETURN_IF_ERROR(Annotate(
          CheckSpeed({.bytes_per_second = speed}, std::max(stage.weight_bytes, stage.state_bytes)),
          absl::StrCat("weights of stage ", s)));
    }
    result.stages_.push_back(
        {ToNs(stage.forward_s), ToNs(stage.recompute_s.value_or(stage.forward_s)),
         ToNs(stage.backward_input_s), ToNs(stage.backward_weight_s), ToNs(stage.update_s),
         ToNs(stage.stash_bytes / costs.host.offload_bytes_per_second),
         ToNs(stage.stash_bytes / costs.host.prefetch_bytes_per_second),
         ToNs(stage.weight_bytes / costs.host.prefetch_bytes_per_second),
         ToNs(stage.weight_bytes / costs.host.offload_bytes_per_second),
         ToNs(stage.state_bytes / costs.host.prefetch_bytes_per_second),
         ToNs(stage.state_bytes / costs.host.offload_bytes_per_second)});
  }
  for (int32_t s = 0; s < links; ++s) {
    const LinkCosts link = costs.links.empty() ? LinkCosts() : costs.links[s];
    PENSTOCK_RETURN_IF_ERROR(Annotate(CheckLink(link), absl::StrCat("link ", s)));
    result.links_.push_back({ToNs(link.bytes / link.bytes_per_second), ToNs(link.latency_s)});
  }
  result.overhead_ns_ = ToNs(costs.overhead_s);
  result.collective_ns_ = ToNs(costs.collective_s);
  result.sum_ns_ = ToNs(costs.sum_s);
  result.link_of_.resize(stages);
  for (const Edge& edge : topology.edges) {
    result.link_of_[edge.from.value][static_cast<size_t>(edge.kind)] = edge.link;
  }
  if (!costs.worker_links.has_value()) return result;
  PENSTOCK_ASSIGN_OR_RETURN(result.pairs_, PairsFrom(costs, topology));
  const double largest = LargestMessage(costs.traffic);
  const auto consider = [&](const LinkSpeed& link) {
    result.longest_message_ns_ = std::max(result.longest_message_ns_,
                                          ToNs(largest / link.bytes_per_second + link.latency_s));
  };
  consider(costs.worker_links->others);
  for (const auto& [pair, link] : costs.worker_links->pairs) consider(link);
  // On the way it passes two cards. What it waits for there are other messages, each of which counts for itself.
  result.longest_message_ns_ += 2 * ToNs(largest / costs.worker_links->card_bytes_per_second);
  return result;
}

int64_t CostsNs::longest_ns() const {
  // The messages of a REDUCE go twice, and may wait for those of the one before.
  int64_t longest = std::max({overhead_ns_, collective_ns_, sum_ns_, 4 * longest_message_ns_});
  for (const Stage& stage : stages_) {
    longest =
        std::max({longest, stage.forward_ns, stage.recompute_ns, stage.backward_input_ns,
                  stage.backward_weight_ns, stage.update_ns, stage.offload_ns, stage.prefetch_ns,
                  stage.load_ns, stage.store_ns, stage.read_state_ns, stage.write_state_ns});
  }
  for (const Link& link : links_) longest = std::max({longest, link.transfer_ns, link.latency_ns});
  return longest;
}

}  // namespace penstock
