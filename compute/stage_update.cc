// Stage: gradients, tied weights and the step.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "compute/stage.h"

namespace penstock {

absl::Status Stage::LayerSquaredNorms(absl::Span<double> norms) {
  PENSTOCK_CHECK(static_cast<int>(norms.size()) == layer_count());
  PENSTOCK_RETURN_IF_ERROR(norms_->Measure(gradients(), absl::MakeSpan(slice_norms_)));
  std::fill(norms.begin(), norms.end(), 0.0);
  for (size_t slice = 0; slice < slice_norms_.size(); ++slice) {
    norms[slice_layers_[slice]] += slice_norms_[slice];
  }
  // The last layer's copy of a tied weight, its only one, counts with the first layer, on another stage.
  if (arena_.tied_count() > 0 && !is_first()) norms.back() = UntiedNorm();
  return absl::OkStatus();
}

// Of a last layer without its tied parameters.
double Stage::UntiedNorm() const {
  double norm = 0.0;
  for (size_t slice = 0; slice < slice_norms_.size(); ++slice) {
    if (slice_layers_[slice] == layer_count() - 1 && !slice_tied_[slice])
      norm += slice_norms_[slice];
  }
  return norm;
}

Tensor Stage::TiedGradient() {
  PENSTOCK_CHECK(arena_.tied_count() > 0);
  return {gradients_, DType::kF32, {arena_.tied_count()}};  // they start the arrays
}

void Stage::SetTiedGradient(const Tensor& last, const Tensor& first) {
  const Tensor& other = is_first() ? last : first;
  const Tensor own = TiedGradient();
  PENSTOCK_CHECK(other.shape == own.shape && other.dtype == own.dtype);
  backend_.AddInto(own.data<float>(), other.data<float>(), own.shape.elements());
}

void Stage::CombineLocalTiedGradients() {
  const absl::Span<const ParameterArena::Use> uses = arena_.later_uses();
  for (size_t use = uses.size(); use-- > 0;) {
    backend_.AddInto(gradients() + uses[use].before, gradients() + uses[use].offset,
                     uses[use].count);
  }
}

absl::Status Stage::CompensateDelay(int64_t read, double strength) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* version, LiveVersion(read));
  if (version == &versions_.current()) return absl::OkStatus();
  backend_.CompensateDelay(gradients(), static_cast<float>(strength), versions_.current().weights(),
                           version->weights(), arena_.weight_count());
  return absl::OkStatus();
}

absl::Status Stage::Step(int64_t version, const StepOptions& options) {
  PENSTOCK_CHECK(static_cast<int>(options.gradient_scales.size()) == layer_count());
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
    slice_scales_[slice] = options.gradient_scales[slice_layers_[slice]];
  }
  arguments.gradient_scales = slice_scales_;
  history_.BeforeStep(transition);
  PENSTOCK_RETURN_IF_ERROR(optimizer_->Step(arguments));
  if (history_.AfterStep(transition, options.feed_back)) RefreshMirror();
  if (options.keep_replaced) PENSTOCK_RETURN_IF_ERROR(versions_.StartLeaving(version - 1));
  backend_.Fill(gradients(), 0.0f, arena_.gradient_count());
  return absl::OkStatus();
}

absl::Status Stage::KeepWeights(int64_t version, int64_t oldest_live_version) {
  PENSTOCK_RETURN_IF_ERROR(versions_.Repeat(version, oldest_live_version));
  backend_.Fill(gradients(), 0.0f, arena_.gradient_count());
  return absl::OkStatus();
}

}  // namespace penstock
