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
//
// With `delayed`, the n-th forward of a range (from 0) belongs to batch n / `batch`, whose gradients make
// version n / batch + 1 of the range; it reads version max(0, n / batch - lag), wherever the stage is
// by then. So every stage reads the same version: with a step as the batch and a lag of 1 this is
// PipeDream-2BW's double buffering, with batches of 1 and a lag of the depth PipeDream's vertical sync.
//
// The last three move weights along their motion (compute/update_history.h): the machine says from which
// version and by how many updates. With `predicted`, as XPipe does it (arXiv 1911.04610), the n-th forward of a
// range aims at the version that its own update will replace, n / `batch` of the range: on 1F1B it is S-1-s
// backwards away on stage s, and when the backward comes it is the current one. With `aligned`, as SpecTrain does
// it (arXiv 1809.02839), all stages aim at one moment, that of the first stage's update: until then stage s makes
// those of another floor(s/2) microbatches, one in two slots. So single microbatches are moved by floor(s/2) +
// S-1-s updates in the forward and by floor(s/2) in the backward. These numbers are derived from the order of
// 1F1B here; those of the papers count their own schedules. PipeMare moves the backward's weights instead, back by
// the drift (T2, arXiv 1910.05124), here by the drift of each microbatch and not by its mean.
//
// A policy is a row of this table and a case in each of the functions of weight_policy.cc.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "schedule/schedule.h"

namespace penstock {

// The weight versions of one stage: the current one and, oldest first, those that are kept.
// Kept versions are released in the order they were made, like the buffers that hold them.
class VersionLedger {
 public:
  // Of `stage`, counted from the first.
  VersionLedger(WeightPolicy policy, StageId stage) : policy_(policy), stage_(stage) {}

  // REQUIRES: no forward waits for its backward.
  void SetPolicy(WeightPolicy policy);

  // Starts again from `version`. REQUIRES: no forward waits for its backward.
  void Reset(int64_t version);
  // A range begins. REQUIRES: no forward waits for its backward.
  void BeginRange() { Reset(current_); }

  int64_t current() const { return current_; }
  // The oldest version still to be read, or the current one; older ones may be released.
  int64_t oldest_live() const {
    return released_ == kept_.size() ? current_ : kept_[released_].version;
  }
  int64_t live() const { return static_cast<int64_t>(kept_.size() - released_) + 1; }

  // The version that the next forward reads; beyond the current one if it is not made yet.
  int64_t NextForwardVersion() const;
  // F of a microbatch that will have a backward: the version it reads.
  // REQUIRES: NextForwardVersion() <= current().
  int64_t BeginForward();
  // The version that the next forward would like to read: beyond the one it reads where weights are moved.
  int64_t NextForwardAim() const;
  // I and W: the version that they read now if their forward read `forward_version`.
  int64_t BackwardVersion(int64_t forward_version) const;
  // The version they would like to read, if their forward read `forward_version` and aimed at `aim`.
  int64_t BackwardAim(int64_t forward_version, int64_t aim) const;
  // After W: this microbatch reads no more.
  void EndBackward(int64_t forward_version);
  // STEP: makes the next version. Returns whether the replaced one is still to be read.
  bool Update();

  // Appends what distinguishes this state from others, versions counted from the current one.
  void AppendRelativeState(std::vector<int64_t>& state) const;

 private:
  struct Kept {
    int64_t version;
    int64_t readers;  // microbatches whose W is to come
  };

  bool BackwardReadsForwardVersion() const {
    return policy_.kind == WeightPolicy::Kind::kStash ||
           policy_.kind == WeightPolicy::Kind::kDelayed;
  }
  bool IsPredicted() const {
    return policy_.kind == WeightPolicy::Kind::kPredicted ||
           policy_.kind == WeightPolicy::Kind::kAligned;
  }
  // Whether forwards to come may read `version`, which is not the current one.
  bool MayBeRead(int64_t version) const;
  int64_t& ReadersOf(int64_t version);
  void ReleaseUnread();

  WeightPolicy policy_;
  StageId stage_;
  int64_t current_ = 0;
  int64_t current_readers_ = 0;
  // A queue, ascending: those before `released_` are no more. It allocates only to hold more than ever before.
  std::vector<Kept> kept_;
  size_t released_ = 0;

  // Of the range.
  int64_t first_version_ = 0;
  int64_t forwards_ = 0;
};

}  // namespace penstock
