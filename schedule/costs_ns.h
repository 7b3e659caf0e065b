// The simulator's costs in whole nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "schedule/action.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace penstock {

// SimulationCosts in nanoseconds, the defaults filled in.
class CostsNs {
 public:
  static absl::StatusOr<CostsNs> From(const SimulationCosts& costs, const Topology& topology);

  int64_t compute_ns(const Action& action) const {
    const Stage& stage = stages_[action.index];
    switch (action.kind) {
      case ActionKind::kForward:
        return stage.forward_ns;
      case ActionKind::kRecompute:
        return stage.recompute_ns;
      case ActionKind::kBackwardInput:
        return stage.backward_input_ns;
      case ActionKind::kBackwardWeight:
        return stage.backward_weight_ns;
      default:
        return stage.update_ns;
    }
  }
  // What the copies of a stash take.
  int64_t offload_ns(const Action& action) const { return stages_[action.index].offload_ns; }
  int64_t prefetch_ns(const Action& action) const { return stages_[action.index].prefetch_ns; }
  // What it takes to read weights from their file, and to read them with the optimizer's state, and to write both.
  // Weights, or a sum of gradients, which has as many bytes.
  int64_t load_ns(const Action& action) const { return stages_[action.index].load_ns; }
  int64_t store_ns(const Action& action) const { return stages_[action.index].store_ns; }
  int64_t read_state_ns(const Action& action) const { return stages_[action.index].read_state_ns; }
  int64_t write_state_ns(const Action& action) const {
    return stages_[action.index].write_state_ns;
  }
  // The time that a message takes on the link that a SEND uses.
  int64_t transfer_ns(const Action& send) const {
    if (pairs_ != nullptr) return TransferBetweenWorkers(send);
    if (send.kind == ActionKind::kSendRequest) return 0;
    return IsOfParameters(send.kind) ? sum_ns_ : links_[LinkOf(send)].transfer_ns;
  }
  int64_t latency_ns(const Action& send) const {
    if (pairs_ != nullptr) return LatencyBetweenWorkers(send);
    const bool between_stages = !IsOfParameters(send.kind) && send.kind != ActionKind::kSendRequest;
    return between_stages ? links_[LinkOf(send)].latency_ns : 0;
  }
  // The bytes of a message. REQUIRES: the links between workers are given.
  double bytes(const Action& send) const { return pairs_->traffic.BytesOf(send); }
  int64_t overhead_ns() const { return overhead_ns_; }
  int64_t collective_ns() const { return collective_ns_; }
  // No action or message takes longer, once others have made way for it: a step takes no longer than all of them one after
  // the other.
  int64_t longest_ns() const;

 private:
  struct Stage {
    int64_t forward_ns, recompute_ns, backward_input_ns, backward_weight_ns, update_ns;
    int64_t offload_ns, prefetch_ns;
    int64_t load_ns, store_ns, read_state_ns, write_state_ns;
  };
  struct Link {
    int64_t transfer_ns, latency_ns;
  };
  struct Pairs {
    Topology topology;
    WorkerLinks links;
    Traffic traffic;
  };

  static absl::StatusOr<std::shared_ptr<const Pairs>> PairsFrom(const SimulationCosts& costs,
                                                                const Topology& topology);
  // A sum of gradients or the weights of a stage.
  static bool IsOfParameters(ActionKind kind) {
    return kind == ActionKind::kSendSum || kind == ActionKind::kSendWeights;
  }
  const LinkSpeed& SpeedOf(const Action& send) const;
  int64_t TransferBetweenWorkers(const Action& send) const;
  int64_t LatencyBetweenWorkers(const Action& send) const;
  int32_t LinkOf(const Action& send) const {
    return link_of_[send.index][static_cast<size_t>(KindOf(send.kind))];
  }

  std::vector<Stage> stages_;
  std::vector<Link> links_;
  // By sending stage and EdgeKind: all edges of one kind out of a stage take the same.
  std::vector<std::array<int32_t, kEdgeKinds>> link_of_;
  int64_t overhead_ns_ = 0;
  int64_t collective_ns_ = 0;
  int64_t sum_ns_ = 0;
  std::shared_ptr<const Pairs> pairs_;  // null: `links_` say what messages take
  int64_t longest_message_ns_ = 0;      // with `pairs_`
};

}  // namespace penstock
