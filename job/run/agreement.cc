#include "job/run/agreement.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/layer_order.h"

namespace penstock {

std::string AgreementOf(const ResolvedJob& job) {
  const StalenessRules& staleness = job.staleness;
  const auto key = [](absl::string_view name, const auto& value) {
    return absl::StrCat(name, " ", value, "\n");
  };
  return absl::StrCat(
      key("rounding", static_cast<int>(job.rounding)), key("stash", static_cast<int>(job.stash)),
      key("repeatability", static_cast<int>(job.repeatability)),
      key("device_graphs", int{job.cuda_graphs}), key("order", static_cast<int>(job.order)),
      key("in_flight_factor", job.in_flight_factor),
      key("rescheduled_steps by fractional delay", staleness.rescheduled_steps),
      key("stage_momentum", staleness.stage_momentum.value_or(-1.0)),
      key("delay_compensation", staleness.delay_compensation),
      key("error_feedback", int{staleness.error_feedback}),
      key("motion_decay", staleness.momentum_average_decay),
      key("stage_layers", absl::StrJoin(job.stage_layers, ",")),
      key("layer_order", absl::StrJoin(LayerOrderOf(job.model), ",")),
      job.pretrained.empty() ? "" : key("pretrained", job.pretrained));
}

}  // namespace penstock
