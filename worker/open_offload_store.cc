#include "worker/open_offload_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/spill_file.h"

namespace penstock {

absl::StatusOr<std::string> OffloadDirectory(absl::string_view key, absl::string_view content,
                                             const std::string& directory) {
  if (!directory.empty()) return directory;
  return absl::FailedPreconditionError(
      absl::StrCat(key, ": this worker has no directory for ", content,
                   "; start it with --offload-dir, or leave the key out"));
}

absl::StatusOr<std::unique_ptr<OffloadStore>> OpenOffloadStore(Backend& backend,
                                                               const std::string& directory,
                                                               int64_t bytes_max, Clock& clock) {
  if (&backend.pool() != &backend.host_pool()) return std::make_unique<HostOffload>(backend);
  PENSTOCK_ASSIGN_OR_RETURN(std::string known,
                            OffloadDirectory("pipeline.offload", "offloaded stashes", directory));
  return SpillFile::Create({.directory = std::move(known), .bytes_max = bytes_max}, backend.pool(),
                           clock);
}

}  // namespace penstock
