#include "coordinator/growth.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/recovery_policy.h"

namespace penstock {
namespace {

// The steps that are done within `ms`, the last perhaps in part.
int64_t StepsWithin(int64_t ms, double step_s) {
  return static_cast<int64_t>(std::ceil(1e-3 * static_cast<double>(ms) / step_s));
}

int64_t LeadSteps(const GrowthCuts& cuts) {
  return 1 + StepsWithin(kGrowthRules.lead_ms, cuts.step_s);
}

// Returns the first of the job's own cuts from `step` on, unless that is its end.
std::optional<int64_t> OwnCutFrom(const GrowthCuts& cuts, int64_t step) {
  const auto next = std::lower_bound(cuts.own.begin(), cuts.own.end(), step);
  if (next == cuts.own.end() || *next >= cuts.steps) return std::nullopt;
  return *next;
}

}  // namespace

std::optional<int64_t> GrowsFromMs(
    const google::protobuf::RepeatedPtrField<v1::Attempt>& attempts) {
  int64_t failed = 0;  // in a row
  int64_t failed_ms = 0;
  for (int i = 0; i < attempts.size(); ++i) {
    const v1::Attempt& attempt = attempts[i];
    if (attempt.cause() == v1::ATTEMPT_CAUSE_UNSPECIFIED) continue;
    // One whose joining worker was gone went on as it was, and names that worker.
    const bool grown = i > 0 && attempts[i - 1].cause() == v1::ATTEMPT_CAUSE_GREW &&
                       attempts[i - 1].worker().empty();
    // Where it did not come to train, the job trained again only after it.
    const int64_t trained_since_ms = grown ? attempts[i - 1].resumed_ms() : 0;
    const bool is_proved =
        trained_since_ms > 0 && attempt.detected_ms() - trained_since_ms >= kGrowthRules.proof_ms;
    if (grown && is_proved) failed = 0;
    const bool joining_gone =
        attempt.cause() == v1::ATTEMPT_CAUSE_GREW && !attempt.worker().empty();
    const bool fails = IsFailure(attempt.cause());
    if (joining_gone || (fails && (attempt.ends_to_grow() || (grown && !is_proved)))) {
      ++failed;
      failed_ms = attempt.detected_ms();
    }
  }
  if (failed >= kGrowthRules.failed_max) return std::nullopt;
  return failed == 0 ? 0 : failed_ms + (kGrowthRules.first_pause_ms << (failed - 1));
}

bool IsTimeToHold(const GrowthCuts& cuts, int64_t step) {
  const auto ms_until = [&](int64_t later) {
    return 1e3 * cuts.step_s * static_cast<double>(later - step);
  };
  const int64_t next = OwnCutFrom(cuts, step + 1).value_or(cuts.steps);
  const bool is_near = next < cuts.steps && next - step <= LeadSteps(cuts);
  const bool is_far = next == cuts.steps || ms_until(next) > kGrowthRules.wait_for_cut_ms;
  if (!is_near && !is_far) return false;
  const int64_t cut = is_near ? next : step + 1;
  return ms_until(cuts.steps) - ms_until(cut) >= kGrowthRules.left_min_ms;
}

int64_t LeadMs(const GrowthCuts& cuts) {
  return static_cast<int64_t>(1e3 * cuts.step_s * static_cast<double>(LeadSteps(cuts)));
}

int64_t CutToGrow(const GrowthCuts& cuts, int64_t held) {
  const int64_t own = OwnCutFrom(cuts, held).value_or(held);
  return own - held <= LeadSteps(cuts) ? own : held;
}

std::vector<WorkerOffer> ChooseToJoin(absl::Span<const std::string> places,
                                      std::vector<WorkerOffer> free, int64_t count) {
  std::stable_partition(free.begin(), free.end(), [&](const WorkerOffer& worker) {
    return std::find(places.begin(), places.end(), worker.name) != places.end();
  });
  if (static_cast<int64_t>(free.size()) > count) free.resize(count);
  return free;
}

std::vector<WorkerOffer> InPlaces(absl::Span<const std::string> places,
                                  std::vector<WorkerOffer> workers) {
  const size_t count = std::min(places.size(), workers.size());
  std::vector<WorkerOffer> placed(workers.size());
  std::vector<WorkerOffer> others;
  for (WorkerOffer& worker : workers) {
    const size_t at = std::find(places.begin(), places.end(), worker.name) - places.begin();
    (at < count ? placed[at] : others.emplace_back()) = std::move(worker);
  }
  auto other = others.begin();
  for (WorkerOffer& worker : placed) {
    if (worker.name.empty()) worker = std::move(*other++);
  }
  return placed;
}

}  // namespace penstock
