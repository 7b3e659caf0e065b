// SnapshotKeeper: keeps the snapshots of a run in this worker's memory and in that of a peer, while training goes on.
//
// As a CheckpointWriter, it has at most one in flight: before the next one begins, the caller waits for the last. One that
// could not be kept, or not copied, is reported as such; training does not depend on it.
//
// Thread safety: Keep and Wait by the executor's thread, Cancel by any.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/cluster.pb.h"
#include "worker/checkpoint_writer.h"
#include "worker/layer_state.h"
#include "worker/snapshot_peers.h"

namespace penstock {

// Returns the worker that keeps a copy of what worker `index` has: the next one on another host, or the next one where all are
// on one host. None: it is the only worker.
std::optional<v1::SnapshotHolder> PeerOf(const v1::Plan& plan, int32_t index);

class SnapshotKeeper {
 public:
  struct Kept {
    std::vector<SavedLayer> layers;
    v1::SnapshotHolder peer;
    absl::Status copied;  // to the peer
  };
  // Called on the writer's thread when a snapshot is kept, or is not.
  using Done = std::function<void(int64_t step, const absl::StatusOr<Kept>& kept)>;

  // REQUIRES: `peers` outlives the keeper.
  SnapshotKeeper(SnapshotPeers& peers, std::string job_id, int64_t epoch, v1::SnapshotHolder peer,
                 Done done);

  // REQUIRES: none is in flight.
  void Keep(int64_t step, std::vector<LayerSnapshot> layers);
  // Until none is in flight. Errors: DeadlineExceeded, or the reason given to Cancel.
  absl::Status Wait(absl::Duration timeout) { return writer_.Wait(timeout); }
  void Cancel(const absl::Status& reason) { writer_.Cancel(reason); }

 private:
  absl::Status Copy(const std::string& directory, const std::vector<SavedLayer>& layers);

  SnapshotPeers& peers_;
  const std::string job_id_;
  const int64_t epoch_;
  const v1::SnapshotHolder peer_;
  const Done done_;
  CheckpointWriter writer_;  // last: its thread uses the rest
};

}  // namespace penstock
