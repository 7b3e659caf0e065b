// Stage: gradients, shared weights and the step.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "compute/stage.h"

namespace penstock {

absl::Status Stage::LayerSquaredNorms(absl::Span<double> norms) {
  PENSTOCK_CHECK(static_cast<int>(norms.size()) == layer_count());
  std::fill(norms.begin(), norms.end(), 0.0);
  if (norms_ == nullptr) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(norms_->Measure(gradients(), absl::MakeSpan(slice_norms_)));
  for (size_t slice = 0; slice < slice_norms_.size(); ++slice) {
    const int layer = slice_owners_[slice] - options_.layers.first;
    if (layer >= 0) norms[layer] += slice_norms_[slice];
  }
  return absl::OkStatus();
}

void Stage::CombineTied(int tie, const Tensor& later) {
  const ParameterArena::TiedParameters& tied = arena_.tied(tie);
  PENSTOCK_CHECK(tied.count > 0);
  if (later) {
    PENSTOCK_CHECK(later.shape == Shape({tied.count}) && later.dtype == DType::kF32);
    backend_.AddInto(gradients() + tied.last, later.data<float>(), tied.count);
  }
  Combine(tied.uses);
}

Tensor Stage::TiedGradient(int tie) {
  const ParameterArena::TiedParameters& tied = arena_.tied(tie);
  PENSTOCK_CHECK(tied.count > 0);
  return {gradients_, DType::kF32, {tied.count}, tied.first * SizeOf(DType::kF32)};
}

void Stage::CombineUses() {
  if (std::exchange(uses_combined_, true)) return;
  Combine(arena_.later_uses());
}

void Stage::Combine(absl::Span<const ParameterArena::Use> uses) {
  for (size_t use = uses.size(); use-- > 0;) {
    backend_.AddInto(gradients() + uses[use].before, gradients() + uses[use].offset,
                     uses[use].count);
  }
}

absl::Status Stage::CompensateDelay(int64_t read, double strength) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* version, LiveVersion(read));
  if (version == &versions_.current() && !history_.has_mean_square()) return absl::OkStatus();
  history_.CompensateDelay(gradients(), strength, versions_.current().weights(),
                           version->weights());
  return absl::OkStatus();
}

absl::Status Stage::Step(int64_t version, const StepOptions& options) {
  PENSTOCK_CHECK(static_cast<int>(options.gradient_scales.size()) == model_.size());
  PENSTOCK_ASSIGN_OR_RETURN(
      const WeightVersions::Transition transition,
      versions_.Advance(version, options.keep_replaced, options.oldest_live_version));
  StepArguments arguments;
  arguments.weights = transition.from->weights();
  arguments.next_weights = transition.to->weights();
  arguments.next_bf16 = transition.to->mirror();
  arguments.gradients = gradients();
  arguments.state = optimizer_arrays_;
  arguments.learning_rate = options.learning_rate;
  arguments.update = ++steps_;
  if (options_.rounding == Rounding::kStochastic) {
    arguments.rounding_key = KeyOfRounding(options_.seed);
  }
  for (size_t slice = 0; slice < slice_scales_.size(); ++slice) {
    slice_scales_[slice] = options.gradient_scales[slice_owners_[slice]];
  }
  arguments.gradient_scales = slice_scales_;
  CopyKept(transition);
  history_.BeforeStep(transition);
  if (optimizer_ != nullptr) PENSTOCK_RETURN_IF_ERROR(optimizer_->Step(arguments));
  if (history_.AfterStep(transition, options.feed_back)) RefreshMirror();
  average_.AfterStep(*transition.to, options.average_keep, arena_.trained_count());
  if (options.keep_replaced) PENSTOCK_RETURN_IF_ERROR(versions_.StartLeaving(version - 1));
  ClearGradients();
  return absl::OkStatus();
}

void Stage::CopyKept(const WeightVersions::Transition& transition) {
  const int64_t first = arena_.trained_count();
  const int64_t count = arena_.weight_count() - first;
  if (count == 0 || transition.from->weights() == transition.to->weights()) return;
  backend_.CopyOnDevice(transition.to->weights() + first, transition.from->weights() + first,
                        count * SizeOf(DType::kF32));
  if (transition.to->mirror() == nullptr) return;
  backend_.CopyOnDevice(transition.to->mirror() + first, transition.from->mirror() + first,
                        count * SizeOf(DType::kBf16));
}

absl::Status Stage::KeepWeights(int64_t version, int64_t oldest_live_version) {
  PENSTOCK_RETURN_IF_ERROR(versions_.Repeat(version, oldest_live_version));
  ClearGradients();
  return absl::OkStatus();
}

void Stage::ClearGradients() {
  uses_combined_ = false;
  if (options_.drops_gradients) {
    gradients_ = Buffer();
  } else {
    backend_.Fill(gradients(), 0.0f, arena_.gradient_count());
  }
}

absl::Status Stage::EnsureGradients() {
  if (gradients_) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(gradients_, Acquire(arena_.gradient_count() * SizeOf(DType::kF32)));
  if (gradients_) backend_.Fill(gradients(), 0.0f, arena_.gradient_count());
  return absl::OkStatus();
}

}  // namespace penstock
