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
  return CheckTime(stage.step_s, "step time");
}

absl::Status CheckLink(const LinkCosts& link) {
  if (!(link.bytes_per_second > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes per second must be positive, got ", link.bytes_per_second));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckTime(link.bytes / link.bytes_per_second, "transfer time"));
  return CheckTime(link.latency_s, "latency");
}

}  // namespace

absl::StatusOr<CostsNs> CostsNs::From(const SimulationCosts& costs, const Topology& topology) {
  const int32_t stages = topology.stages();
  const int32_t links = LinksOf(topology);
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
    result.stages_.push_back(
        {ToNs(stage.forward_s), ToNs(stage.recompute_s.value_or(stage.forward_s)),
         ToNs(stage.backward_input_s), ToNs(stage.backward_weight_s), ToNs(stage.step_s)});
  }
  for (int32_t s = 0; s < links; ++s) {
    const LinkCosts link = costs.links.empty() ? LinkCosts() : costs.links[s];
    PENSTOCK_RETURN_IF_ERROR(Annotate(CheckLink(link), absl::StrCat("link ", s)));
    result.links_.push_back({ToNs(link.bytes / link.bytes_per_second), ToNs(link.latency_s)});
  }
  result.overhead_ns_ = ToNs(costs.overhead_s);
  result.collective_ns_ = ToNs(costs.collective_s);
  result.sum_ns_ = ToNs(costs.sum_s);
  result.there_and_back_ = topology.there_and_back();
  for (int32_t s = 0; s < stages; ++s)
    result.link_after_.push_back(LinkAfter(topology, StageId(s)));
  return result;
}

int64_t CostsNs::longest_ns() const {
  int64_t longest = std::max({overhead_ns_, collective_ns_, sum_ns_});
  for (const Stage& stage : stages_) {
    longest = std::max({longest, stage.forward_ns, stage.recompute_ns, stage.backward_input_ns,
                        stage.backward_weight_ns, stage.step_ns});
  }
  for (const Link& link : links_) longest = std::max({longest, link.transfer_ns, link.latency_ns});
  return longest;
}

}  // namespace penstock
