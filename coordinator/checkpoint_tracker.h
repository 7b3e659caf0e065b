// CheckpointTracker: which layers of which checkpoint have been written, so that a checkpoint is
// committed when, and only when, every worker has reported its part, and what is staged for one that failed is removed
// when no worker writes to it any more. A worker writes the layers of one step after those of another.
//
// A state machine without I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

class CheckpointTracker {
 public:
  // A checkpoint of one step that all workers have written.
  struct Complete {
    int64_t step = 0;
    std::vector<v1::SavedFile> files;     // by layer and name
    std::vector<v1::SavedFile> attached;  // as one worker names them
    std::vector<v1::LayerDigest> layers;  // ascending

    // Adds what a worker has of it.
    void Add(const v1::LayersSaved& saved);
    // All have been added. Their order must not matter: a commit that is done again after a restart compares the manifests.
    void Sort();
  };

  // The steps that are remembered to be over one by one. Before them all are: checkpoints end nearly in order.
  static constexpr size_t kOverMax = 1024;

  // The steps that some workers have written and others have not, or have not been heard of: reports may come late. What
  // a worker reports of more steps waits with it, so one that makes its reports up takes no memory.
  static constexpr size_t kIncompleteMax = 16;

  explicit CheckpointTracker(int32_t workers) : workers_(workers) {}

  // `worker` wrote its layers. Returns the checkpoint if that was the last missing part. Reports of
  // one worker for one step after its first are ignored.
  std::optional<Complete> Saved(int32_t worker, const v1::LayersSaved& saved);
  // `worker` could not. Returns whether this is the first failure of that step. Ignored as above.
  bool Failed(int32_t worker, int64_t step);
  // The commit of a complete one succeeded, or nobody waits for it any more, and it may still end either way.
  void StopAwaiting(int64_t step) { committing_.erase(step); }
  // It failed.
  void NotCommitted(int64_t step);
  // Returns the latest step that was given up and that every worker is through with, if there is one since the last
  // call: no worker writes any more to what is staged for it and for those before it.
  std::optional<int64_t> TakeGivenUp() { return std::exchange(given_up_, std::nullopt); }

  // Returns whether a report for `step` leaves the incomplete ones few enough. Workers report their steps in order, so
  // one of whom fewer came than of all others reports a step that has begun: it never waits, and others may go on then.
  bool MayBegin(int64_t step) const {
    return IsOver(step) || parts_.count(step) > 0 || parts_.size() < kIncompleteMax;
  }
  // Returns whether a complete one waits for its commit.
  bool Committing() const { return !committing_.empty(); }

 private:
  struct Parts {
    std::set<int32_t> workers;  // that have answered
    Complete complete;
    bool failed = false;
  };
  // Takes a worker's answer. Returns null if it is not its first one for that step.
  Parts* Answer(int32_t worker, int64_t step);
  // Takes out what is known of a step if all workers have answered, and gives it up if one of them could not.
  std::optional<Parts> TakeAnswered(int64_t step);
  void GiveUp(int64_t step);
  bool IsOver(int64_t step) const { return step <= all_over_ || over_.count(step) > 0; }

  int32_t workers_;
  std::map<int64_t, Parts> parts_;  // by step, of those that not all workers have answered
  std::set<int64_t> over_;          // all workers have answered
  int64_t all_over_ = -1;           // up to here
  std::set<int64_t> committing_;
  std::optional<int64_t> given_up_;
};

}  // namespace penstock
