// Stage: what goes between stages that have the same layers on several workers.
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/stage.h"

namespace penstock {

void Stage::TakeGradients(float* to) {
  const int64_t count = arena_.gradient_count();
  backend_.CopyOnDevice(to, gradients(), count * SizeOf(DType::kF32));
  ClearGradients();
}

absl::Status Stage::PutGradients(const float* from) {
  PENSTOCK_RETURN_IF_ERROR(EnsureGradients());
  backend_.CopyOnDevice(gradients(), from, arena_.gradient_count() * SizeOf(DType::kF32));
  return absl::OkStatus();
}

void Stage::BeginBufferSum(int64_t replica, int64_t replicas) {
  for (int n = 0; n < plan_.node_count; ++n) {
    for (size_t b = 0; b < node(n).buffers.size(); ++b) {
      const BufferSpec& buffer = node(n).buffers[b];
      if (buffer.kind != BufferSpec::Kind::kCarried || !carries()) continue;
      const int64_t floats = options_.samples * buffer.size();  // of a microbatch
      float* const first = static_cast<float*>(buffers_.data()) + buffer_layout_.offsets[n][b];
      for (int64_t m = 0; m < options_.step_samples / options_.samples; ++m) {
        if (m % replicas != replica) backend_.Fill(first + m * floats, -0.0f, floats);
      }
    }
  }
}

void Stage::EndBufferSum(int64_t replicas) {
  if (statistics_count() == 0) return;
  backend_.Scale(static_cast<float*>(buffers_.data()), 1.0f / static_cast<float>(replicas),
                 statistics_count());
}

void Stage::CopyWeights(float* to) {
  backend_.CopyOnDevice(to, versions_.current().weights(),
                        arena_.trained_count() * SizeOf(DType::kF32));
}

absl::Status Stage::AdoptWeights(int64_t version, const float* weights) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const WeightVersions::Transition transition,
      versions_.Advance(version, /*keep_replaced=*/false, /*oldest_live=*/version));
  backend_.CopyOnDevice(transition.to->weights(), weights,
                        arena_.trained_count() * SizeOf(DType::kF32));
  ++steps_;  // the one that was made elsewhere
  RefreshMirror();
  return absl::OkStatus();
}

absl::Status Stage::CopyAllWeights(int64_t version, float* to) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, LiveVersion(version));
  backend_.CopyOnDevice(to, weights->weights(), arena_.weight_count() * SizeOf(DType::kF32));
  return absl::OkStatus();
}

absl::Status Stage::PutWeights(int64_t version, Tensor weights) {
  PENSTOCK_RETURN_IF_ERROR(CheckTensor("weights", weights, DType::kF32, weight_shape()));
  const bool come_and_go = options_.borrows_weights || options_.stores_state;
  if (!come_and_go || versions_.has_arrays()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("weights for layers %d to %d, which have theirs", options_.layers.first,
                        options_.layers.end() - 1));
  }
  steps_ += version - versions_.current().number;  // those that were made elsewhere
  PENSTOCK_RETURN_IF_ERROR(versions_.PutArrays(version, std::move(weights.buffer)));
  RefreshMirror();
  return absl::OkStatus();
}

Tensor Stage::Weights() const {
  return {versions_.current().arrays.f32, DType::kF32, weight_shape()};
}

int64_t Stage::state_count() const {
  return arena_.trained_count() > 0 ? static_cast<int64_t>(state_names_.size()) : 0;
}

std::vector<Tensor> Stage::State() {
  std::vector<Tensor> arrays;
  for (const Buffer& state : optimizer_state_) {
    arrays.push_back({state, DType::kF32, state_shape()});
  }
  return arrays;
}

void Stage::PutState(absl::Span<const Tensor> arrays) {
  PENSTOCK_CHECK(options_.stores_state);
  PENSTOCK_CHECK(arrays.empty() || static_cast<int64_t>(arrays.size()) == state_count());
  optimizer_state_.clear();
  for (size_t slot = 0; slot < optimizer_arrays_.size(); ++slot) {
    const bool comes = slot < arrays.size();
    if (comes) optimizer_state_.push_back(arrays[slot].buffer);
    optimizer_arrays_[slot] = comes ? static_cast<float*>(arrays[slot].buffer.data()) : nullptr;
    state_arrays_[slot] = optimizer_arrays_[slot];
  }
}

absl::Status Stage::EvaluateFor(const Stage& other) {
  PENSTOCK_CHECK(buffer_layout_.offsets == other.buffer_layout_.offsets &&
                 arena_.frozen_count() == other.arena_.frozen_count());
  PENSTOCK_RETURN_IF_ERROR(PutWeights(other.version(), other.Weights()));
  frozen_ = other.frozen_;
  evaluation_carries_ = other.evaluation_carries_;
  return absl::OkStatus();
}

}  // namespace penstock
