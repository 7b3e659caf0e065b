// CheckpointTracker: which layers of which checkpoint have been written, so that a checkpoint is
// committed when, and only when, every worker has reported its part.
//
// A state machine without I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
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
  // A worker could not. Returns whether this is the first failure of that step.
  bool Failed(int64_t step);
  // The commit of a complete one ended.
  void Committed(int64_t step);

  // Returns whether a complete one waits for its commit.
  bool Committing() const { return !committing_.empty(); }
  // Returns whether the checkpoint of `step` was completed and committed.
  bool IsCommitted(int64_t step) const { return committed_.count(step) > 0; }

 private:
  struct Parts {
    std::set<int32_t> workers;
    Complete complete;
  };

  int32_t workers_;
  std::map<int64_t, Parts> parts_;  // by step, of those incomplete
  std::set<int64_t> failed_;
  std::set<int64_t> committing_;
  std::set<int64_t> committed_;
};

}  // namespace penstock
