#include "worker/valid_targets.h"

#include <algorithm>

#include "absl/types/span.h"
#include "base/check.h"
#include "base/status.h"
#include "worker/update_rule.h"

namespace penstock {

ValidTargets::ValidTargets(const ResolvedJob& job, const DataSource* data)
    : job_(job),
      data_(data),
      ignored_(job.model.loss().ignored),
      port_(ignored_.has_value() ? job.model.targets() : -1) {
  if (!ignored_.has_value()) return;
  PENSTOCK_CHECK(job.model.is_port(port_));
  // The step in hand, and the one before it, which is reported.
  counted_.resize(2 * job.microbatches);
  targets_.resize(job.microbatch_samples * job.model.targets_per_sample());
}

absl::StatusOr<double> ValidTargets::Weight(Split split, int64_t microbatch) {
  if (all_count()) return 1.0;
  Counted& counted = counted_[microbatch % static_cast<int64_t>(counted_.size())];
  if (counted.microbatch == microbatch && counted.split == split) {
    return static_cast<double>(counted.valid);
  }
  PENSTOCK_CHECK(data_ != nullptr);
  const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(targets_.data()),
                                    targets_.size() * sizeof(int32_t));
  PENSTOCK_RETURN_IF_ERROR(data_->Read(split, FirstSample(job_, microbatch), port_, bytes));
  const auto ignored = std::count(targets_.begin(), targets_.end(), *ignored_);
  counted = {split, microbatch, static_cast<int64_t>(targets_.size()) - ignored};
  return static_cast<double>(counted.valid);
}

absl::StatusOr<double> ValidTargets::Weight(Split split, MicrobatchRange microbatches) {
  if (all_count()) return static_cast<double>(microbatches.count);
  double sum = 0.0;
  for (int64_t m = microbatches.first; m < microbatches.end(); ++m) {
    PENSTOCK_ASSIGN_OR_RETURN(const double weight, Weight(split, m));
    sum += weight;
  }
  return sum;
}

absl::StatusOr<float> ValidTargets::Part(int64_t microbatch, MicrobatchRange microbatches) {
  PENSTOCK_ASSIGN_OR_RETURN(const double part, Weight(Split::kTraining, microbatch));
  PENSTOCK_ASSIGN_OR_RETURN(const double whole, Weight(Split::kTraining, microbatches));
  return static_cast<float>(part / std::max(whole, 1.0));
}

absl::StatusOr<float> ValidTargets::LossScale(int64_t microbatch) {
  const int64_t step = microbatch / job_.microbatches;
  const int64_t count = job_.microbatches_of_update(step);
  return Part(microbatch, {.first = microbatch / count * count, .count = count});
}

bool WeighsReplicas(const ResolvedJob& job, const StageWiring& stage) {
  return job.model.loss().ignored.has_value() && job.method->updates_each_microbatch &&
         stage.replicas > 1;
}

}  // namespace penstock
