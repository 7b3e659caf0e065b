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
        places_(order.Places()),
        positions_(range.workers.size()),
        stages_(order.stages.size()),
        updates_(places_.size(), std::vector<int64_t>(range.microbatches.count)) {
    for (size_t place = 0; place < places_.size(); ++place) {
      for (size_t replica = 0; replica < places_[place].size(); ++replica) {
        StageState& stage = stages_[places_[place][replica].value];
        stage.place = place;
        stage.replica = static_cast<int64_t>(replica);
        stage.replicas = static_cast<int64_t>(places_[place].size());
      }
    }
  }

  // Microbatches of an update of a place, of all replicas.
  static int64_t MicrobatchesOfUpdate(const OrderReplay::Rules& rules, int64_t replicas) {
    return std::max(rules.microbatches_per_update, replicas);
  }

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
    const std::string of_replicas = ObstacleAfterUpdate(worker);
    if (!of_replicas.empty()) return of_replicas;
    return block.backward ? ObstacleToBackward(stage) : ObstacleToForward(worker, stage);
  }

  struct StageState {
    size_t place = 0;
    int64_t replica = 0;
    int64_t replicas = 1;
    int64_t forwards = 0;  // done
    int64_t backwards = 0;
    // In the range, that of its n-th pass.
    int64_t MicrobatchAt(int64_t n) const { return n * replicas + replica; }
  };

  int64_t PassesOfUpdate(const StageState& stage) const {
    return MicrobatchesOfUpdate(rules_, stage.replicas) / stage.replicas;
  }
  // The stage that microbatch k of the range goes through.
  size_t StageAt(size_t place, int64_t k) const {
    const std::vector<StageId>& replicas = places_[place];
    return replicas[k % static_cast<int64_t>(replicas.size())].value;
  }

  std::string ObstacleToForward(size_t worker, size_t id) const {
    const StageState& stage = stages_[id];
    const int64_t next = stage.MicrobatchAt(stage.forwards);
    if (next >= range_.microbatches.count) return "the range has no more microbatches";
    if (stage.place > 0) {
      const size_t before = StageAt(stage.place - 1, next);
      if (stages_[before].MicrobatchAt(stages_[before].forwards) <= next) {
        return absl::StrCat("stage ", before, " has not run the forward of microbatch ",
                            range_.microbatches.first + next, " by then");
      }
    }
    const int64_t update = stage.forwards / PassesOfUpdate(stage);
    if (rules_.drains) {
      for (const StageId other : range_.workers[worker].stages()) {
        const StageState& beside = stages_[other.value];
        if (beside.backwards / PassesOfUpdate(beside) >= update) continue;
        return absl::StrCat("stage ", other.value, " has not made the update of the step before");
      }
    }
    const int64_t made = stage.backwards / PassesOfUpdate(stage);
    if (rules_.lag > 0 && made < Reads(stage)) {
      return absl::StrCat("it reads weight version ", Reads(stage),
                          " of the range, which is not made by then");
    }
    return "";
  }

  // The version of a fixed age that the stage's next forward reads.
  int64_t Reads(const StageState& stage) const {
    const int64_t first_of_round = stage.forwards * stage.replicas;
    const int64_t batch =
        MicrobatchesOfUpdate(rules_, static_cast<int64_t>(places_.front().size()));
    const int64_t known = std::max<int64_t>(0, first_of_round / batch - rules_.lag) * batch;
    return known / MicrobatchesOfUpdate(rules_, stage.replicas);
  }

  std::string ObstacleToBackward(size_t id) const {
    const StageState& stage = stages_[id];
    if (stage.backwards == stage.forwards) return "its forward has not been run by then";
    if (stage.place + 1 == places_.size()) return "";
    const int64_t next = stage.MicrobatchAt(stage.backwards);
    const size_t after = StageAt(stage.place + 1, next);
    if (stages_[after].MicrobatchAt(stages_[after].backwards) <= next) {
      return absl::StrCat("stage ", after, " has not run the backward of microbatch ",
                          range_.microbatches.first + next, " by then");
    }
    return "";
  }

  // The update after a stage's last backward may wait for other replicas. Where the method drains it comes once all stages
  // of the worker have done their part.
  std::string ObstacleAfterUpdate(size_t worker) const {
    const std::vector<StageId>& ids = range_.workers[worker].stages();
    const auto done = [this](StageId id) {
      const StageState& stage = stages_[id.value];
      return stage.backwards / PassesOfUpdate(stage);
    };
    int64_t of_all = done(ids.front());
    for (const StageId id : ids) of_all = std::min(of_all, done(id));
    for (const StageId id : ids) {
      const int64_t update = rules_.drains ? of_all : done(id);
      for (const StageId other : places_[stages_[id.value].place]) {
        if (done(other) >= update) continue;
        return absl::StrCat("stage ", other.value, " has not done its part of update ", update,
                            " by then");
      }
    }
    return "";
  }

  void Do(const OrderBlock& block) {
    StageState& stage = stages_[block.stage.value];
    if (block.backward) {
      ++stage.backwards;
      return;
    }
    updates_[stage.place][stage.MicrobatchAt(stage.forwards)] =
        stage.backwards / PassesOfUpdate(stage);
    ++stage.forwards;
  }

  const RecordedOrder::Range& range_;
  const OrderReplay::Rules& rules_;
  const std::vector<std::vector<StageId>> places_;
  std::vector<int64_t> positions_;             // in the logs, by worker
  std::vector<StageState> stages_;             // by StageId
  std::vector<std::vector<int64_t>> updates_;  // by place and microbatch
};

}  // namespace

absl::StatusOr<OrderReplay> OrderReplay::Make(const RecordedOrder& order, const Rules& rules) {
  OrderReplay replay;
  const std::vector<std::vector<StageId>> places = order.Places();
  replay.updates_.resize(places.size());
  replay.fewest_.resize(places.size());
  replay.late_max_.resize(places.size());
  if (!order.ranges.empty()) replay.first_ = order.ranges.front().microbatches.first;
  for (const RecordedOrder::Range& range : order.ranges) {
    RangeReplay run(order, range, rules);
    PENSTOCK_RETURN_IF_ERROR(run.Run());
    for (size_t place = 0; place < places.size(); ++place) {
      const std::vector<int64_t>& updates = run.updates()[place];
      const int64_t of_update =
          RangeReplay::MicrobatchesOfUpdate(rules, static_cast<int64_t>(places[place].size()));
      for (size_t k = 0; k < updates.size(); ++k) {
        const int64_t serially = static_cast<int64_t>(k) / of_update;
        replay.late_max_[place] = std::max(replay.late_max_[place], serially - updates[k]);
      }
      std::vector<int64_t> fewest = updates;
      for (size_t k = fewest.size(); k-- > 1;) fewest[k - 1] = std::min(fewest[k - 1], fewest[k]);
      replay.updates_[place].insert(replay.updates_[place].end(), updates.begin(), updates.end());
      replay.fewest_[place].insert(replay.fewest_[place].end(), fewest.begin(), fewest.end());
    }
  }
  return replay;
}

}  // namespace penstock
