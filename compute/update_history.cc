#include "compute/update_history.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr std::array<absl::string_view, 3> kStateNames = {"motion", "last_update", "mean_square"};

absl::StatusOr<Buffer> Acquire(Backend& backend, int64_t size_bytes) {
  Buffer buffer = backend.pool().Acquire(size_bytes);
  if (buffer) return buffer;
  return absl::ResourceExhaustedError(
      absl::StrFormat("no memory for %d more bytes that remember updates; use more stages, or a "
                      "method without predicted weights, error feedback and mean squares",
                      size_bytes));
}

}  // namespace

absl::Span<const absl::string_view> HistoryStateNames() { return kStateNames; }

absl::StatusOr<UpdateHistory> UpdateHistory::Create(Backend& backend, const HistoryOptions& options,
                                                    int64_t count, int64_t weight_count,
                                                    bool with_mirror) {
  UpdateHistory history;
  history.backend_ = &backend;
  history.count_ = count;
  if (!options.any()) return history;
  PENSTOCK_CHECK(options.average_decay >= 0.0 && options.average_decay < 1.0);
  PENSTOCK_CHECK(options.mean_square_decay >= 0.0 && options.mean_square_decay < 1.0);
  history.options_ = options;
  history.weight_count_ = weight_count;
  const int64_t bytes = count * SizeOf(DType::kF32);
  const std::array<std::pair<bool, float**>, kStateNames.size()> kept = {
      {{options.momentum_average, &history.average_},
       {options.last_update, &history.last_update_},
       {options.mean_square, &history.mean_square_}}};
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i].first) continue;
    PENSTOCK_ASSIGN_OR_RETURN(Buffer buffer, Acquire(backend, bytes));
    auto* array = static_cast<float*>(buffer.data());
    backend.Fill(array, 0.0f, count);
    *kept[i].second = array;
    history.names_.push_back(kStateNames[i]);
    history.arrays_.push_back(array);
    history.buffers_.push_back(std::move(buffer));
  }
  for (int64_t older = 1; options.momentum_average && older < options.averages_max; ++older) {
    PENSTOCK_ASSIGN_OR_RETURN(history.older_averages_.emplace_back(), Acquire(backend, bytes));
  }
  if (!options.updates()) return history;
  PENSTOCK_ASSIGN_OR_RETURN(history.predicted_.arrays.f32,
                            Acquire(backend, weight_count * SizeOf(DType::kF32)));
  if (with_mirror && options.momentum_average) {
    PENSTOCK_ASSIGN_OR_RETURN(history.predicted_.arrays.bf16,
                              Acquire(backend, weight_count * SizeOf(DType::kBf16)));
  }
  return history;
}

void UpdateHistory::Forget() {
  predicted_ahead_ = 0;
  steps_ = 0;
}

void UpdateHistory::CompensateDelay(float* gradients, double strength, const float* now,
                                    const float* read) {
  const auto factor = static_cast<float>(strength);
  if (mean_square_ == nullptr) {
    backend_->CompensateDelay(gradients, factor, now, read, count_);
    return;
  }
  const MeanSquareCompensation compensation = {
      .keep = static_cast<float>(options_.mean_square_decay),
      .take = static_cast<float>(1.0 - options_.mean_square_decay),
      .strength = factor};
  backend_->CompensateDelay(gradients, mean_square_, compensation, now, read, count_);
}

void UpdateHistory::BeforeStep(const WeightVersions::Transition& transition) {
  if (!options_.updates()) return;
  predicted_ahead_ = 0;
  if (!older_averages_.empty()) {
    const int64_t replaced = transition.to->number - 1;
    Buffer& older = older_averages_[replaced % static_cast<int64_t>(older_averages_.size())];
    backend_->CopyOnDevice(older.data(), average_, count_ * SizeOf(DType::kF32));
  }
  if (transition.from->weights() != transition.to->weights()) return;
  backend_->CopyOnDevice(predicted_.weights(), transition.from->weights(),
                         count_ * SizeOf(DType::kF32));
}

bool UpdateHistory::AfterStep(const WeightVersions::Transition& transition, bool feed_back) {
  PENSTOCK_CHECK(!feed_back || last_update_ != nullptr);
  if (!options_.updates()) return false;
  float* const next = transition.to->weights();
  const bool in_place = transition.from->weights() == next;
  version_ = transition.to->number;
  ++steps_;
  float* const update = predicted_.weights();
  backend_->LinearCombination(update, 1.0f, next, -1.0f,
                              in_place ? update : transition.from->weights(), count_);
  float* const correction = last_update_;
  if (feed_back) {
    backend_->LinearCombination(correction, 1.0f, update, -1.0f, correction, count_);
    backend_->LinearCombination(next, 1.0f, next, 1.0f, correction, count_);
  }
  if (average_ != nullptr) {
    const auto keep = static_cast<float>(options_.average_decay);
    const auto take = static_cast<float>(1.0 - options_.average_decay);
    backend_->LinearCombination(average_, keep, average_, take, update, count_);
    if (feed_back) {
      backend_->LinearCombination(average_, 1.0f, average_, take, correction, count_);
    }
  }
  if (last_update_ != nullptr) {
    backend_->CopyOnDevice(last_update_, update, count_ * SizeOf(DType::kF32));
  }
  return feed_back;
}

void UpdateHistory::CopyFrozen(const WeightVersions::Version& from) {
  const int64_t frozen = weight_count_ - count_;
  if (frozen == 0) return;
  backend_->CopyOnDevice(predicted_.weights() + count_, from.weights() + count_,
                         frozen * SizeOf(DType::kF32));
  if (predicted_.mirror() == nullptr) return;
  backend_->CopyOnDevice(predicted_.mirror() + count_, from.mirror() + count_,
                         frozen * SizeOf(DType::kBf16));
}

const float* UpdateHistory::AverageOf(int64_t version) const {
  const auto older = static_cast<int64_t>(older_averages_.size());
  const int64_t age = steps_ == 0 ? 0 : version_ - version;
  PENSTOCK_CHECK(age >= 0 && age <= std::min(older, steps_));
  if (age == 0) return average_;
  return static_cast<const float*>(older_averages_[version % older].data());
}

const WeightVersions::Version& UpdateHistory::Predicted(const WeightVersions::Version& from,
                                                        int64_t ahead) {
  PENSTOCK_CHECK(has_average() && ahead != 0);
  if (predicted_ahead_ == ahead && predicted_from_ == from.number) return predicted_;
  backend_->LinearCombination(predicted_.weights(), 1.0f, from.weights(), static_cast<float>(ahead),
                              AverageOf(from.number), count_);
  if (predicted_.mirror() != nullptr) {
    backend_->ConvertToBf16(predicted_.mirror(), predicted_.weights(), count_);
  }
  CopyFrozen(from);
  predicted_from_ = from.number;
  predicted_ahead_ = ahead;
  return predicted_;
}

int64_t UpdateHistory::state_bytes() const {
  int64_t bytes = 0;
  for (const Buffer& buffer : buffers_) bytes += buffer.size_bytes();
  return bytes;
}

int64_t UpdateHistory::workspace_bytes() const {
  return predicted_.arrays.f32.size_bytes() + predicted_.arrays.bf16.size_bytes();
}

}  // namespace penstock
