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
    std::vector<v1::SavedFile> files;
    std::vector<v1::LayerDigest> layers;  // ascending
  };

  explicit CheckpointTracker(int32_t workers) : workers_(workers) {}

  // `worker` wrote its layers. Returns the checkpoint if that was the last missing part. Reports of
  // one worker for one step after its first are ignored.
  std::optional<Complete> Saved(int32_t worker, const v1::LayersSaved& saved);
  // `worker` could not. Returns whether this is the first failure of that step. Ignored as above.
  bool Failed(int32_t worker, int64_t step);
  // The commit of a complete one succeeded, or did not.
  void Committed(int64_t step);
  void NotCommitted(int64_t step);
  // Nobody waits any more for the commit of a complete one, which may still end either way.
  void StopAwaiting(int64_t step) { committing_.erase(step); }
  // Returns the latest step that was given up and that every worker is through with, if there is one since the last
  // call: no worker writes any more to what is staged for it and for those before it.
  std::optional<int64_t> TakeGivenUp() { return std::exchange(given_up_, std::nullopt); }

  // Returns whether a complete one waits for its commit.
  bool Committing() const { return !committing_.empty(); }
  // Returns whether the checkpoint of `step` was completed and committed.
  bool IsCommitted(int64_t step) const { return committed_.count(step) > 0; }

 private:
  struct Parts {
    std::set<int32_t> workers;  // that have answered
    Complete complete;
  };
  // Takes a worker's answer. Returns null if it is not its first one for that step.
  Parts* Answer(int32_t worker, int64_t step);
  // Takes out what is known of a step that all workers have answered; nothing if one has not.
  std::optional<Complete> TakeAnswered(int64_t step);
  void GiveUp(int64_t step);

  int32_t workers_;
  std::map<int64_t, Parts> parts_;  // by step, of those that not all workers have answered
  std::set<int64_t> answered_;      // by all
  std::optional<int64_t> given_up_;
  std::set<int64_t> failed_;
  std::set<int64_t> committing_;
  std::set<int64_t> committed_;
};

}  // namespace penstock
