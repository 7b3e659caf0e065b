#include "worker/update_rule.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"

namespace penstock {

int64_t FirstSample(const ResolvedJob& job, int64_t microbatch) {
  return microbatch * job.microbatch_samples;
}

double RateOfUpdate(const ResolvedJob& job, MicrobatchRange microbatches) {
  return job.learning_rate.At(FirstSample(job, microbatches.end()));
}

double RateOfUpdate(const ResolvedJob& job, const StageLateness& lateness,
                    MicrobatchRange microbatches) {
  const double rate = RateOfUpdate(job, microbatches);
  const int64_t steps = job.staleness.rescheduled_steps;
  const int64_t begun = job.synchronous_steps * job.microbatches;
  if (steps == 0 || lateness.rate_delay <= 1.0 || microbatches.end() <= begun) return rate;
  const double done = static_cast<double>(microbatches.end() - begun) /
                      static_cast<double>(steps * job.microbatches);
  return rate / std::pow(lateness.rate_delay, 1.0 - std::min(done, 1.0));
}

double AverageKept(const ResolvedJob& job, int64_t microbatches, int64_t pipelines) {
  if (!job.average_decay.has_value()) return 1.0;
  return std::pow(*job.average_decay, static_cast<double>(microbatches * pipelines) /
                                          static_cast<double>(job.microbatches));
}

bool CompensatesDelay(const ResolvedJob& job, int64_t version, int64_t read_version) {
  const StalenessRules& rules = job.staleness;
  const bool is_late = read_version + 1 < version;
  return rules.adaptive_compensation || (rules.delay_compensation > 0.0 && is_late);
}

bool FeedsBack(const ResolvedJob& job, int64_t version, int64_t read_version) {
  return job.staleness.error_feedback && read_version + 2 == version;
}

std::vector<int> OwnersBefore(const ModelGraph& model, LayerRange layers) {
  std::set<int> owners;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    for (const auto& [name, owner] : model.OwnersElsewhere(layer)) {
      if (owner < layers.first) owners.insert(owner);
    }
  }
  return {owners.begin(), owners.end()};
}

absl::Status CheckNorms(const ModelGraph& model, LayerRange layers, absl::Span<const double> norms,
                        int64_t step, int32_t stage) {
  for (int layer = 0; layer < layers.count; ++layer) {
    if (std::isfinite(norms[layer])) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("step ", step, ", stage ", stage, ": the gradient of layer ",
                     model.layers[layers.first + layer].name, " is not finite (squared norm ",
                     norms[layer], "); lower the learning rate, or lengthen the warm-up"));
  }
  return absl::OkStatus();
}

absl::Status CheckLoss(double loss, int64_t step, int32_t stage) {
  if (std::isfinite(loss)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, ", stage ", stage, ": the loss is ",
                   std::isnan(loss) ? "not a number" : "infinite",
                   "; lower the learning rate, lengthen the warm-up or clip gradients"));
}

absl::Status MessageNotFinite(int64_t step, int32_t stage) {
  return absl::FailedPreconditionError(
      absl::StrCat("step ", step, ", stage ", stage,
                   ": an activation or gradient for another stage is not finite; lower the "
                   "learning rate, lengthen the warm-up or clip gradients"));
}

}  // namespace penstock
