#include "worker/order_replay.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

// All workers over one range.
class RangeReplay {
 public:
  RangeReplay(const RecordedOrder& order, const RecordedOrder::Range& range,
              const OrderReplay::Rules& rules)
      : range_(range),
        rules_(rules),
        positions_(range.workers.size()),
        forwards_(order.stages.size()),
        backwards_(order.stages.size()),
        updates_(order.stages.size()) {}

  // Goes on with every worker as far as it can until all are done.
  absl::Status Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t worker = 0; worker < positions_.size(); ++worker) {
        const OrderLog& log = range_.workers[worker];
        while (positions_[worker] < log.size()) {
          const std::string obstacle = Obstacle(worker, log.At(positions_[worker]));
          if (!obstacle.empty()) break;
          Do(log.At(positions_[worker]));
          ++positions_[worker];
          moved = true;
        }
      }
    }
    // The first that cannot go on is named; where several wait for each other any of them will do.
    for (size_t worker = 0; worker < positions_.size(); ++worker) {
      const int64_t at = positions_[worker];
      if (at == range_.workers[worker].size()) continue;
      const OrderBlock block = range_.workers[worker].At(at);
      return absl::InvalidArgumentError(
          absl::StrCat("microbatches ", range_.microbatches.first, " to ",
                       range_.microbatches.end() - 1, ", worker ", worker, ", block ", at, " (",
                       ToString(block), "): ", Obstacle(worker, block)));
    }
    return absl::OkStatus();
  }

  const std::vector<std::vector<int64_t>>& updates() const { return updates_; }

 private:
  // Why `block` cannot be done now, or empty.
  std::string Obstacle(size_t worker, const OrderBlock& block) const {
    const auto stage = static_cast<size_t>(block.stage.value);
    return block.backward ? ObstacleToBackward(stage) : ObstacleToForward(worker, stage);
  }

  std::string ObstacleToForward(size_t worker, size_t stage) const {
    const int64_t next = forwards_[stage];
    if (next == range_.microbatches.count) return "the range has no more microbatches";
    if (stage > 0 && forwards_[stage - 1] == next) {
      return absl::StrCat("stage ", stage - 1, " has not run the forward of microbatch ",
                          range_.microbatches.first + next, " by then");
    }
    const int64_t update = next / rules_.microbatches_per_update;
    if (rules_.drains) {
      for (const StageId other : range_.workers[worker].stages()) {
        if (backwards_[other.value] / rules_.microbatches_per_update >= update) continue;
        return absl::StrCat("stage ", other.value, " has not made the update of the step before");
      }
    }
    const int64_t made = backwards_[stage] / rules_.microbatches_per_update;
    if (rules_.lag > 0 && made < update - rules_.lag) {
      return absl::StrCat("it reads weight version ", update - rules_.lag,
                          " of the range, which is not made by then");
    }
    return "";
  }

  std::string ObstacleToBackward(size_t stage) const {
    const int64_t next = backwards_[stage];
    if (next == forwards_[stage]) return "its forward has not been run by then";
    if (stage + 1 < backwards_.size() && backwards_[stage + 1] == next) {
      return absl::StrCat("stage ", stage + 1, " has not run the backward of microbatch ",
                          range_.microbatches.first + next, " by then");
    }
    return "";
  }

  void Do(const OrderBlock& block) {
    const auto stage = static_cast<size_t>(block.stage.value);
    if (block.backward) {
      ++backwards_[stage];
      return;
    }
    ++forwards_[stage];
    updates_[stage].push_back(backwards_[stage] / rules_.microbatches_per_update);
  }

  const RecordedOrder::Range& range_;
  const OrderReplay::Rules& rules_;
  std::vector<int64_t> positions_;             // in the logs, by worker
  std::vector<int64_t> forwards_, backwards_;  // done, by stage
  std::vector<std::vector<int64_t>> updates_;  // by stage and microbatch
};

}  // namespace

absl::StatusOr<OrderReplay> OrderReplay::Make(const RecordedOrder& order, const Rules& rules) {
  OrderReplay replay;
  replay.updates_.resize(order.stages.size());
  replay.late_max_.resize(order.stages.size());
  if (!order.ranges.empty()) replay.first_ = order.ranges.front().microbatches.first;
  for (const RecordedOrder::Range& range : order.ranges) {
    RangeReplay run(order, range, rules);
    PENSTOCK_RETURN_IF_ERROR(run.Run());
    for (size_t stage = 0; stage < order.stages.size(); ++stage) {
      const std::vector<int64_t>& updates = run.updates()[stage];
      for (size_t k = 0; k < updates.size(); ++k) {
        const int64_t serially = static_cast<int64_t>(k) / rules.microbatches_per_update;
        replay.late_max_[stage] = std::max(replay.late_max_[stage], serially - updates[k]);
      }
      replay.updates_[stage].insert(replay.updates_[stage].end(), updates.begin(), updates.end());
    }
  }
  return replay;
}

}  // namespace penstock
