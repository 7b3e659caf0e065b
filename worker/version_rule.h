// VersionRule: which weights a microbatch reads in a serial run, by the closed forms of the continuous methods.
//
// It asks no schedule, so that the reference can judge what schedules and machines say. A stage updates after
// every `interval` microbatches, and `depth` of them are on their way beyond it: one for each stage after it,
// or, where stages have replicas, as many as fill its warm-up, a multiple of the interval. Microbatches k and
// versions are counted from the cut that a range begins at. In a run in recorded order the newest version that
// a forward found follows from the log instead; versions of a fixed age are the same in any order, and so
// are versions of a drawn one.
//
// A value; pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "job/run_schedule.h"
#include "schedule/block_draws.h"
#include "schedule/catalog/catalog.h"
#include "worker/order_replay.h"

namespace penstock {

class VersionRule {
 public:
  // `draws`: of drawn weights. `replay` may be null. `first`: the first microbatch of the range.
  VersionRule(Weights weights, int64_t stages, int64_t interval, const BlockDraws& draws,
              const OrderReplay* replay, int64_t first)
      : weights_(weights),
        stages_(stages),
        interval_(interval),
        draws_(draws),
        replay_(replay),
        first_(first) {}

  int64_t Forward(int64_t k, int64_t depth) const {
    if (replay_ != nullptr && ReadsNewest()) {
      return replay_->UpdatesBeforeForward(stages_ - 1 - depth, first_ + k);
    }
    switch (weights_) {
      case Weights::kSingle:
      case Weights::kStash:
      case Weights::kPredicted:
      case Weights::kSpecTrain:
      case Weights::kCorrected:
        return std::max<int64_t>(0, k - depth) / interval_;
      case Weights::kDoubleBuffer:
        return std::max<int64_t>(0, k / interval_ - 1);
      case Weights::kVerticalSync:
        return std::max<int64_t>(0, k - (stages_ - 1));
      case Weights::kDrawn:
        return k - draws_.DelayOf(first_ + k, StageOf(depth), k);
    }
    PENSTOCK_CHECK(false);
  }
  int64_t Backward(int64_t k, int64_t depth) const {
    return ReadsCurrent() ? k / interval_ : Forward(k, depth);
  }
  // The oldest version that microbatches from the k-th on read.
  int64_t OldestFrom(int64_t k, int64_t depth) const {
    return weights_ == Weights::kDrawn ? k - draws_.DelayMax(k) : Forward(k, depth);
  }
  // Whether the update that takes in the k-th microbatch changes the weights of the stage.
  bool Moves(int64_t k, int64_t depth) const {
    return weights_ != Weights::kDrawn || draws_.StageOf(first_ + k) == StageOf(depth);
  }
  // By how many updates the weights of stage `number` are moved from these versions.
  int64_t ForwardAhead(int64_t k, int64_t number, int64_t depth) const {
    return Predicts() ? Aim(k, number) - Forward(k, depth) : 0;
  }
  int64_t BackwardAhead(int64_t k, int64_t number, int64_t depth) const {
    if (weights_ == Weights::kCorrected) return Forward(k, depth) - Backward(k, depth);
    return Predicts() ? Aim(k, number) - Backward(k, depth) : 0;
  }
  // The most updates between a gradient's forward and the update it goes into, and between its forward and its
  // backward where both read the current weights; and the delay that PipeMare gives rates by (job/run_schedule.h),
  // for which it matters whether the method makes an update for each microbatch or for a step.
  StageLateness Lateness(int64_t depth, bool updates_each_microbatch) const {
    const auto whole = [](int64_t staleness, int64_t drift) {
      return StageLateness{staleness, drift, static_cast<double>(staleness)};
    };
    const int64_t in_flight = UpdatesInFlight(depth);
    StageLateness lateness;
    switch (weights_) {
      case Weights::kDoubleBuffer:
        return whole(1, 0);
      case Weights::kVerticalSync:
        return whole(stages_ - 1, 0);
      case Weights::kDrawn:
        return {.staleness = draws_.delta()};
      case Weights::kStash:
        lateness = whole(in_flight, 0);
        break;
      default:
        lateness = whole(in_flight, in_flight);
        break;
    }
    if (!updates_each_microbatch) {
      lateness.rate_delay =
          (2.0 * static_cast<double>(depth) + 1.0) / static_cast<double>(interval_);
    }
    return lateness;
  }
  // Whether forward and backward each read the weights as they are then, moved or not.
  bool ReadsCurrent() const {
    return weights_ == Weights::kSingle || weights_ == Weights::kCorrected || Predicts();
  }
  // From the oldest still to be read to the newest.
  int64_t VersionsMax(int64_t depth) const {
    if (replay_ != nullptr && ReadsNewest()) return replay_->LateMax(stages_ - 1 - depth) + 1;
    switch (weights_) {
      case Weights::kSingle:
      case Weights::kStash:
      case Weights::kPredicted:
      case Weights::kSpecTrain:
      case Weights::kCorrected:
        return UpdatesInFlight(depth) + 1;
      case Weights::kDoubleBuffer:
        return 2;
      case Weights::kVerticalSync:
        return stages_;
      case Weights::kDrawn:
        return draws_.delta() + 1;
    }
    PENSTOCK_CHECK(false);
  }

 private:
  // Of the microbatches between forward and backward, in whole updates.
  int64_t UpdatesInFlight(int64_t depth) const { return (depth + interval_ - 1) / interval_; }
  bool Predicts() const {
    return weights_ == Weights::kPredicted || weights_ == Weights::kSpecTrain;
  }
  // The version that a prediction is for: the one that the microbatch's own update replaces, or the current
  // one when the first stage makes its update.
  int64_t Aim(int64_t k, int64_t number) const {
    return (weights_ == Weights::kSpecTrain ? k + number / 2 : k) / interval_;
  }
  int32_t StageOf(int64_t depth) const { return static_cast<int32_t>(stages_ - 1 - depth); }
  bool ReadsNewest() const { return weights_ == Weights::kSingle || weights_ == Weights::kStash; }

  const Weights weights_;
  const int64_t stages_;
  const int64_t interval_;
  const BlockDraws draws_;
  const OrderReplay* const replay_;
  const int64_t first_;
};

}  // namespace penstock
