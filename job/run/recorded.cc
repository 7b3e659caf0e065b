#include "job/run/recorded.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/run/run_schedule.h"

namespace penstock {
namespace {

// Bytes of a log in a message, beside its blocks.
constexpr int64_t kLogOverheadBytes = 32;

bool PlacesOneCopy(Placement placement) {
  switch (placement) {
    case Placement::kStraight:
    case Placement::kLooped:
      return true;
    case Placement::kV:
    case Placement::kListed:
    case Placement::kReplicas:
    case Placement::kRoundTrip:
      return false;
  }
  return false;
}

// The sends that a method wants before the W of their microbatch.
bool SendsEarly(const Method& method, const ScheduleOptions& options) {
  return options.send_gradient_early || method.sends_gradient_early;
}

}  // namespace

absl::Status CheckRecordable(const ResolvedJob& job, const ScheduleOptions& options) {
  if (job.order == Order::kStatic) return absl::OkStatus();
  const Method& method = *job.method;
  const auto refuse = [&](absl::string_view reason) {
    return InvalidKey("pipeline.order", absl::StrCat("cannot be recorded with ", method.name, ": ",
                                                     reason, "; use static"));
  };
  if (job.listed != nullptr) return refuse("its order is what the file is for");
  if (SendsEarly(method, options)) {
    return refuse(
        "it lives by where each I and W stands, which no worker can tell from what is ready");
  }
  if (!PlacesOneCopy(method.placement)) {
    return refuse("its order and its placement belong together");
  }
  if (job.synchronous_steps > 0) {
    return refuse("pipeline.synchronous_steps changes the order within the job");
  }
  if (job.staleness.any()) {
    return refuse("training.staleness takes how late gradients are from the static order");
  }
  if (method.synchronous && method.updates_each_microbatch) {
    return refuse("its updates within a step are not counted by a log");
  }
  if (job.draws()) {
    return refuse(
        "every order gives the same weights, because the versions that are read are sampled");
  }
  if (job.weights_read().moves) {
    return refuse("the weights it reads follow from the static order");
  }
  return absl::OkStatus();
}

absl::Status CheckOrderSize(const ResolvedJob& job, const Topology& topology, int64_t first_step,
                            absl::Span<const Cut> cuts) {
  if (job.order == Order::kStatic) return absl::OkStatus();
  int64_t bytes = 0;
  int64_t from_step = first_step;
  for (const Cut& cut : cuts) {
    const MicrobatchRange range = RangeOfSteps(job, from_step, cut.step);
    for (int32_t worker = 0; worker < topology.workers; ++worker) {
      const std::vector<StageId> stages = topology.StagesOf(WorkerId(worker));
      const int32_t replicas = topology[stages.front()].replicas;
      bytes += kLogOverheadBytes + OrderLog::BytesComplete(stages.size(), range.count / replicas);
    }
    from_step = cut.step;
  }
  if (bytes <= kOrderBytesMax) return absl::OkStatus();
  return InvalidKey(
      "pipeline.order",
      absl::StrCat("is recorded, but the logs of ", from_step - first_step, " steps of ",
                   job.microbatches, " microbatches on ", topology.stages(), " stages take ", bytes,
                   " bytes; at most ", kOrderBytesMax,
                   " are kept. Use fewer steps, fewer cuts, or static"));
}

int64_t InFlightMax(const ResolvedJob& job, int64_t static_peak) {
  return std::clamp<int64_t>(job.in_flight_factor * static_peak, 1, kRecordedCapacityMax);
}

ReadyOrder::Options ReadyOrderOptionsOf(const ResolvedJob& job, const ScheduleOptions& options,
                                        MicrobatchRange range, std::vector<int64_t> in_flight_max) {
  return {.range = range,
          .in_flight_max = std::move(in_flight_max),
          .microbatches_per_update = job.microbatches_of_update(job.steps),
          .drains = job.method->synchronous,
          .lower = {.global_norm = options.global_norm}};
}

}  // namespace penstock
