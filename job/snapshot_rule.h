// SnapshotRule: after which steps the workers of a job keep a snapshot in memory, beside its checkpoints on disk.
//
// A job without a checkpoint directory has snapshots at its cuts. With recovery.snapshot_every_steps there are more where
// the method drains at every step anyway, so that they change nothing that is trained; and those cuts of a job with a directory
// count that are not saved there.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <limits>

#include "job/resolve.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

struct SnapshotRule {
  bool at_cuts = false;     // that are not saved on disk
  int64_t every_steps = 0;  // and after each multiple of this many; 0: not

  bool any() const { return at_cuts || every_steps > 0; }
  // Returns the first step after `step` that is a multiple.
  int64_t Next(int64_t step) const {
    return every_steps > 0 ? (step / every_steps + 1) * every_steps
                           : std::numeric_limits<int64_t>::max();
  }
  bool IsMultiple(int64_t step) const { return every_steps > 0 && step % every_steps == 0; }
};

// REQUIRES: `job` is `spec`, resolved.
SnapshotRule SnapshotRuleOf(const v1::JobSpec& spec, const ResolvedJob& job);

}  // namespace penstock
