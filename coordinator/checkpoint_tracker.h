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

  // The steps that are remembered to be over one by one. Before them all are: checkpoints end nearly in order.
  static constexpr size_t kOverMax = 1024;

  // The steps that some workers have written and others have not. A worker that waits at a cut for others is two ahead
  // at most, so one that is further ahead makes its reports up.
  static constexpr size_t kIncompleteMax = 16;

  explicit CheckpointTracker(int32_t workers) : workers_(workers) {}

  // `worker` wrote its layers. Returns the checkpoint if that was the last missing part. Reports of
  // one worker for one step after its first are ignored.
  std::optional<Complete> Saved(int32_t worker, const v1::LayersSaved& saved);
  // A worker could not, or the commit failed. Returns whether the step was not over before.
  bool Failed(int64_t step);
  // The commit of a complete one ended.
  void Committed(int64_t step);

  // Returns whether a report for `step` leaves the incomplete ones few enough.
  bool MayBegin(int64_t step) const {
    return IsOver(step) || parts_.count(step) > 0 || parts_.size() < kIncompleteMax;
  }
  // Returns whether a complete one waits for its commit.
  bool Committing() const { return !committing_.empty(); }

 private:
  struct Parts {
    std::set<int32_t> workers;
    Complete complete;
  };

  bool IsOver(int64_t step) const { return step <= all_over_ || over_.count(step) > 0; }
  bool SetOver(int64_t step);

  int32_t workers_;
  std::map<int64_t, Parts> parts_;  // by step, of those incomplete
  std::set<int64_t> committing_;
  std::set<int64_t> over_;  // committed, or failed
  int64_t all_over_ = -1;   // up to here
};

}  // namespace penstock
