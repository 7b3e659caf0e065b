// RemoteCheckpoints: the files of checkpoints that lie at the coordinator (checkpoint_files.proto), for a worker without a disk
// for them. Nothing of them is kept here.
//
// Thread safety: all methods from any thread, those of what ForRun makes too.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files.h"
#include "penstock/v1/checkpoint_files.pb.h"
#include "services/rpc/limits.h"

namespace penstock {

class RemoteCheckpoints {
 public:
  // How the coordinator is asked (CheckpointFiles). Each waits for `timeout` at most.
  struct Calls {
    std::function<absl::StatusOr<v1::WritePartResponse>(const v1::WritePartRequest&,
                                                        absl::Duration timeout)>
        write;
    std::function<absl::StatusOr<v1::ReadPartResponse>(const v1::ReadPartRequest&,
                                                       absl::Duration timeout)>
        read;
  };

  // `patience`: how long nothing may get through before a file is given up.
  explicit RemoteCheckpoints(Calls calls, absl::Duration patience = rpc_limits::kDataPatience)
      : calls_(std::move(calls)), patience_(patience) {}

  // The files as one run sees them. Each goes on after breaks of the link and of the coordinator. `may_go_on` is asked before
  // each part, on the thread that reads or writes; its error ends that. REQUIRES: this outlives what is returned.
  // Errors also: Unavailable naming the file (nothing got through for too long).
  std::unique_ptr<FileStore> ForRun(std::function<absl::Status()> may_go_on);

  // Counts the parts that the newest run has read, of all its files together: while it is prepared, heartbeats show by it that
  // the worker comes further. A file of a layer may be one part.
  int64_t parts() const { return parts_; }

 private:
  class RunFiles;

  const Calls calls_;
  const absl::Duration patience_;
  std::atomic<int64_t> parts_ = 0;
};

}  // namespace penstock
