#include "worker/snapshot_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {

absl::StatusOr<std::string> SnapshotReader::Read(const std::string& path, int64_t size_bytes_max) {
  absl::StatusOr<std::string> here = peers_.memory().Read(path, size_bytes_max);
  if (!absl::IsNotFound(here.status())) return here;
  const auto entry =
      std::find_if(manifest_.files.begin(), manifest_.files.end(), [&](const CheckpointFile& file) {
        return JoinPath(snapshot_.directory(), file.name) == path;
      });
  absl::Status silent;
  for (const v1::SnapshotPart& part : snapshot_.parts()) {
    const auto& layers = part.layers();
    if (entry == manifest_.files.end() ||
        std::find(layers.begin(), layers.end(), entry->layer) == layers.end()) {
      continue;
    }
    for (const v1::SnapshotHolder& holder : part.holders()) {
      absl::StatusOr<std::string> content =
          peers_.Fetch(holder, path, entry->size_bytes, may_go_on_);
      PENSTOCK_RETURN_IF_ERROR(may_go_on_());
      if (content.ok()) return content;
      if (!absl::IsNotFound(content.status())) silent.Update(content.status());
    }
  }
  if (!silent.ok()) return absl::UnavailableError(absl::StrCat(path, ": ", silent.message()));
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": no worker has this part of the snapshot in memory any more"));
}

}  // namespace penstock
