// Weight policies: which version of a stage's weights forward and backward read, and which versions
// must be kept for that.
//
//   policy     forward reads          backward (I and W) reads   kept besides the current version
//   single     the current            the current                none
//   stash      the current            what its forward read      those read by a forward whose W is to come
//   delayed    `lag` before that      what its forward read      the same, and those that a forward of the
//              of its batch                                      range may still read
//   predicted  the current, moved     the current                none
//              ahead to its update
//   aligned    the current, moved     the current, moved ahead   none
//              ahead to the first     to the first stage's
//              stage's update         update
//   corrected  the current            the current, moved back    none
//                                     to what its forward read
//   drawn      one of the last        what its forward read      the last `lag` + 1, of which those that no
//              `lag` + 1, drawn                                  draw has changed are one
//
// With `delayed`, the n-th forward of a range (from 0) belongs to batch n / `batch`, whose gradients make
// version n / batch + 1 of the range; it reads version max(0, n / batch - lag), wherever the stage is
// by then. So every stage reads the same version: with a step as the batch and a lag of 1 this is
// PipeDream-2BW's double buffering, with batches of 1 and a lag of the depth PipeDream's vertical sync.
//
// Predicted, aligned and corrected move weights along their motion (compute/update_history.h): the
// machine says from which version and by how many updates. With `predicted`, as XPipe does it
// (arXiv 1911.04610), the n-th forward of a range aims at the version that its own update will
// replace, n / `batch` of the range: on 1F1B it is S-1-s backwards away on stage s, and when the
// backward comes it is the current one. With `aligned`, as SpecTrain does it (arXiv 1809.02839),
// all stages aim at one moment, that of the first stage's update: until then stage s makes those of
// another floor(s/2) microbatches, one in two slots. So single microbatches are moved by floor(s/2)
// + S-1-s updates in the forward and by floor(s/2) in the backward. These numbers are derived from
// the order of 1F1B here; those of the papers count their own schedules. PipeMare moves the
// backward's weights instead, back by the drift (T2, arXiv 1910.05124), here by the drift of each
// microbatch and not by its mean.
//
// With `drawn` (block_draws.h) a version counts the microbatches that the whole model has seen. If
// the draw of a microbatch is another stage, its STEP makes a version that is the same weights as
// the one before: the gradient is dropped, and no memory is taken. What may be read, and so what is
// allowed, does not depend on the draws.
//
// A policy is a row of this table and a case in each of the functions of weight_policy.cc.
//
// Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "schedule/block_draws.h"
#include "schedule/schedule.h"

namespace penstock {

// The weight versions of one stage: the current one and, oldest first, those that are kept.
// Kept versions are released in the order they were made, like the buffers that hold them.
class VersionLedger {
 public:
  // Of `stage`, counted from the first of a pipeline of `stages`.
  VersionLedger(WeightPolicy policy, StageId stage, int32_t stages);

  // REQUIRES: no forward waits for its backward.
  void SetPolicy(WeightPolicy policy);

  // Starts again from `version`. REQUIRES: no forward waits for its backward.
  void Reset(int64_t version);
  // A range begins. REQUIRES: no forward waits for its backward.
  void BeginRange() { Reset(current_); }

  int64_t current() const { return current_; }
  // Whether what is read, and whether an update changes anything, is drawn.
  bool draws() const { return policy_.draws(); }
  // The oldest version still to be read, or the current one; older ones may be released.
  int64_t oldest_live() const;
  // Those of them that are weights of their own.
  int64_t live() const { return static_cast<int64_t>(kept_.size() - released_) + 1; }

  // Where versions are drawn, forwards come in the order of the microbatches.
  bool TakesForward(int64_t microbatch) const {
    return !policy_.draws() || forwards_ == 0 || microbatch == first_microbatch_ + forwards_;
  }
  // The version that the next forward reads, the newest that it might if that is drawn; beyond the
  // current one if it is not made yet.
  int64_t NextForwardVersion() const;
  // F of a microbatch that will have a backward: the version it reads.
  // REQUIRES: NextForwardVersion() <= current(), TakesForward(microbatch).
  int64_t BeginForward(int64_t microbatch);
  // After BeginForward returned `version`: the one that this forward would like to read, beyond it
  // where weights are moved.
  int64_t ForwardAim(int64_t version) const {
    return IsPredicted() ? AimOfForward(forwards_ - 1) : version;
  }
  // I and W: the version that they read now if their forward read `forward_version`.
  int64_t BackwardVersion(int64_t forward_version) const;
  // The version they would like to read, if their forward read `forward_version` and aimed at `aim`.
  int64_t BackwardAim(int64_t forward_version, int64_t aim) const;
  // After W: this microbatch reads no more.
  void EndBackward(int64_t forward_version);
  // Whether the update of `microbatch` changes the weights; only draws say that it does not.
  bool Moves(int64_t microbatch) const {
    return !policy_.draws() || draws_.StageOf(microbatch) == stage_.value;
  }
  // STEP: makes the next version, of weights of its own if `moves`. Returns whether the replaced
  // ones are still to be read.
  bool Update(bool moves);

  // Appends what distinguishes this state from others, versions counted from the current one.
  void AppendRelativeState(std::vector<int64_t>& state) const;

 private:
  struct Kept {
    int64_t version;  // the last of these weights
    int64_t readers;  // microbatches whose W is to come; not counted where versions are drawn
  };

  bool BackwardReadsForwardVersion() const {
    return policy_.kind == WeightPolicy::Kind::kStash ||
           policy_.kind == WeightPolicy::Kind::kDelayed;
  }
  bool IsPredicted() const {
    return policy_.kind == WeightPolicy::Kind::kPredicted ||
           policy_.kind == WeightPolicy::Kind::kAligned;
  }
  // Where weights are predicted: the version that forward number `forward` of the range is for.
  int64_t AimOfForward(int64_t forward) const;
  // Whether forwards to come may read `version`, which is not the current one; where versions are
  // drawn, also whether microbatches in flight may.
  bool MayBeRead(int64_t version) const;
  // Where versions are drawn: the oldest that microbatches without an update may read.
  int64_t OldestDrawn() const {
    return first_version_ + std::max<int64_t>(0, current_ - first_version_ - policy_.lag);
  }
  int64_t& ReadersOf(int64_t version);
  void ReleaseUnread();

  WeightPolicy policy_;
  StageId stage_;
  int32_t stages_;
  BlockDraws draws_;
  int64_t current_ = 0;
  int64_t current_readers_ = 0;
  // A queue, ascending: those before `released_` are no more. It allocates only to hold more than ever before.
  std::vector<Kept> kept_;
  size_t released_ = 0;

  // Of the range.
  int64_t first_version_ = 0;
  int64_t first_microbatch_ = 0;  // of its first forward
  int64_t forwards_ = 0;
};

}  // namespace penstock
