// SnapshotPeers: the snapshots that a worker keeps in memory, and the way to those of other workers.
//
// An interface, so that tests need no network; over gRPC in services/worker/snapshot_calls.h.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/cluster.pb.h"
#include "worker/snapshot_memory.h"

namespace penstock {

class SnapshotPeers {
 public:
  virtual ~SnapshotPeers() = default;

  // Those that are here.
  virtual SnapshotMemory& memory() = 0;
  // Copies a file that is here to `peer`. `may_go_on` is asked now and then.
  // Errors: those of SnapshotMemory, here and there, of `may_go_on`, Unavailable or DeadlineExceeded naming the peer.
  virtual absl::Status Send(const v1::SnapshotHolder& peer, const std::string& path,
                            absl::FunctionRef<absl::Status()> may_go_on) = 0;
  // Returns a file that `peer` has. Errors: likewise.
  virtual absl::StatusOr<std::string> Fetch(const v1::SnapshotHolder& peer, const std::string& path,
                                            int64_t size_bytes,
                                            absl::FunctionRef<absl::Status()> may_go_on) = 0;
};

}  // namespace penstock
