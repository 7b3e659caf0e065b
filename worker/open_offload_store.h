// OpenOffloadStore: the store that fits a worker's device (compute/offload_store.h), and where its files are.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "compute/backend.h"
#include "compute/offload_store.h"

namespace penstock {

// Returns `directory`, in which `content` of the key is to wait. Errors: FailedPrecondition (it is empty: none was named).
absl::StatusOr<std::string> OffloadDirectory(absl::string_view key, absl::string_view content,
                                             const std::string& directory);

// Returns pinned memory of the host where the device has memory of its own, otherwise a file in `directory` with room for
// `bytes_max` (RoomInFile of all stashes that are out at once). REQUIRES: the back-end and `clock` outlive the store.
// Errors: those of SpillFile::Create; OffloadDirectory's.
absl::StatusOr<std::unique_ptr<OffloadStore>> OpenOffloadStore(Backend& backend,
                                                               const std::string& directory,
                                                               int64_t bytes_max, Clock& clock);

}  // namespace penstock
