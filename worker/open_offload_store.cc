#include "worker/open_offload_store.h"

#include "worker/spill_file.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<OffloadStore>> OpenOffloadStore(Backend& backend,
                                                               const std::string& directory,
                                                               int64_t bytes_max, Clock& clock) {
  if (&backend.pool() != &backend.host_pool()) return std::make_unique<HostOffload>(backend);
  if (directory.empty()) {
    return absl::FailedPreconditionError(
        "pipeline.offload: this worker has no directory for offloaded stashes; start it with "
        "--offload-dir, or leave the key out");
  }
  return SpillFile::Create({.directory = directory, .bytes_max = bytes_max}, backend.pool(), clock);
}

}  // namespace penstock
