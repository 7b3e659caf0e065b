// VersionLedger: the weight versions of one stage, the current one and those that are still to be read, by the rules of
// its policy (weight_policy.h).
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "schedule/topology.h"
#include "schedule/weight_policy.h"

namespace penstock {

// Kept versions are released in the order they were made, like the buffers that hold them.
class VersionLedger {
 public:
  VersionLedger(WeightPolicy policy, const Topology& topology, StageId stage);

  // REQUIRES: no forward waits for its backward.
  void SetPolicy(WeightPolicy policy);

  // Starts again from `version`. REQUIRES: no forward waits for its backward.
  void Reset(int64_t version);
  // A range begins. REQUIRES: no forward waits for its backward.
  void BeginRange() { Reset(stage_.current); }

  int64_t current() const { return stage_.current; }
  // True if the versions that are read, and the updates that change anything, are sampled.
  bool draws() const { return rules().draws; }
  // The oldest version still to be read, or the current one; older ones may be released.
  int64_t oldest_live() const;
  // The versions among them that are weights of their own.
  int64_t live() const { return static_cast<int64_t>(kept_.size() - released_) + 1; }

  // Where versions are sampled, forwards come in the order of the microbatches.
  bool TakesForward(int64_t microbatch) const {
    return !draws() || stage_.forwards == 0 ||
           microbatch == stage_.first_microbatch + stage_.forwards;
  }
  // The version that the next forward reads, the newest that it might if that is sampled; beyond the
  // current one if it is not made yet.
  int64_t NextForwardVersion() const { return rules().next_forward(stage_); }
  // F of a microbatch that will have a backward: the version it reads.
  // REQUIRES: NextForwardVersion() <= current(), TakesForward(microbatch).
  int64_t BeginForward(int64_t microbatch);
  // F of a microbatch whose backward another stage does: the version it reads, once. REQUIRES: the same.
  int64_t ReadOnce();
  // After BeginForward returned `version`: the one that this forward would like to read, beyond it
  // where weights are predicted.
  int64_t ForwardAim(int64_t version) const {
    return rules().aim(stage_, stage_.forwards - 1, version);
  }
  // I and W: the version that they read now if their forward read `forward_version`.
  int64_t BackwardVersion(int64_t forward_version) const {
    return rules().backward(stage_, forward_version);
  }
  // The version they would like to read, if their forward read `forward_version` and aimed at `aim`.
  int64_t BackwardAim(int64_t forward_version, int64_t aim) const {
    return rules().moves ? aim : BackwardVersion(forward_version);
  }
  // After W: this microbatch reads no more.
  void EndBackward(int64_t forward_version);
  // True if the update of `microbatch` changes the weights; only samples say that it does not.
  bool Moves(int64_t microbatch) const { return rules().updates(stage_, microbatch); }
  // UPDATE: makes the next version, of weights of its own if `moves`. Returns whether the replaced
  // ones are still to be read.
  bool Update(bool moves);

  // Appends what distinguishes this state from others, versions counted from the current one.
  void AppendRelativeState(std::vector<int64_t>& state) const;

 private:
  struct Kept {
    int64_t version;  // the last of these weights
    int64_t readers;  // microbatches between F and W that would read them now
  };

  const Weights& rules() const { return *stage_.policy.weights; }
  // True if `version`, which is not the current one, is kept even without readers.
  bool KeepsUnread(int64_t version) const { return version >= rules().keeps_from(stage_); }
  // The entry of the weights that `version` names.
  int64_t& ReadersOf(int64_t version);
  void ReleaseUnread();

  StageVersions stage_;
  bool averages_gradients_ = false;  // Topology::AveragesGradients
  int64_t current_readers_ = 0;
  // A queue, ascending: those before `released_` are no more. It allocates only to hold more than ever before.
  std::vector<Kept> kept_;
  size_t released_ = 0;
};

}  // namespace penstock
