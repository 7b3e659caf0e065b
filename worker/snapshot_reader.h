// SnapshotReader: the files of a snapshot, from this worker's memory or from the workers that have them.
//
// Thread-compatible.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "checkpoint/manifest.h"
#include "penstock/v1/cluster.pb.h"
#include "worker/snapshot_peers.h"

namespace penstock {

class SnapshotReader final : public FileReader {
 public:
  // `may_go_on` is asked while a file is fetched. REQUIRES: all outlive the reader; `manifest` is the snapshot's.
  SnapshotReader(SnapshotPeers& peers, const v1::PeerSnapshot& snapshot, const Manifest& manifest,
                 absl::FunctionRef<absl::Status()> may_go_on)
      : peers_(peers), snapshot_(snapshot), manifest_(manifest), may_go_on_(may_go_on) {}

  // Errors: FailedPrecondition if no worker has it any more, Unavailable if one that should have it does not answer, that of
  // `may_go_on`.
  absl::StatusOr<std::string> Read(const std::string& path, int64_t size_bytes_max) override;

 private:
  SnapshotPeers& peers_;
  const v1::PeerSnapshot& snapshot_;
  const Manifest& manifest_;
  const absl::FunctionRef<absl::Status()> may_go_on_;
};

}  // namespace penstock
