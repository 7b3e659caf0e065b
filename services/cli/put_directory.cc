#include "services/cli/put_directory.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/file_tree.h"
#include "base/files.h"
#include "base/put_path.h"
#include "base/status.h"
#include "checkpoint/limits.h"
#include "checkpoint/weight_files.h"
#include "data/put_listing.h"
#include "data/record_index.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Adds the name of what is at `entry`, if it is a file. Returns whether to look into it.
absl::StatusOr<bool> Visit(const fs::directory_entry& entry, const std::string& name,
                           std::vector<std::string>& names) {
  const std::string path = entry.path().string();
  if (const absl::Status below = CheckNameBelow(name); !below.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": its name ", below.message()));
  }
  std::error_code error;
  const fs::file_status status = entry.status(error);  // of what a link leads to
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(
        absl::StrCat(path, " is a link to nothing; fetch the directory with all its files"));
  }
  if (error) return FileError("look at", path, error.value());
  if (status.type() == fs::file_type::directory) {
    if (!entry.is_symlink(error)) return true;
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a link to a directory; put that one by itself, or copy it there"));
  }
  if (status.type() != fs::file_type::regular) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is neither a file nor a directory; leave it out"));
  }
  if (static_cast<int64_t>(names.size()) >= kPutFilesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the directory has more than ", kPutFilesMax, " files"));
  }
  names.push_back(name);
  return false;
}

// The files that the index at `path` lists; none, if it is another kind of file.
absl::StatusOr<std::set<std::string>> ListedBy(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  std::set<std::string> listed;
  if (name == kWeightsIndexName) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                              RealFiles().Read(path, kSafetensorsHeaderBytesMax));
    return ShardsOfIndex(text);
  }
  if (name != kRecordIndexFile) return listed;
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, RealFiles().Read(path, kRecordIndexBytesMax));
  const absl::StatusOr<RecordIndex> index = ParseRecordIndex(text);
  if (!index.ok()) return listed;  // a file of another purpose may have this name
  for (const RecordShard& shard : index->shards) listed.insert(shard.file);
  for (const ListedFile& file : index->files) listed.insert(file.file);
  return listed;
}

// REQUIRES: `names` are sorted.
absl::Status CheckIsWhole(const std::string& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    const absl::StatusOr<std::set<std::string>> listed = ListedBy(path);
    if (!listed.ok()) return Annotate(listed.status(), path);
    const std::string folder = name.substr(0, name.rfind('/') + 1);  // npos + 1 is 0
    for (const std::string& file : *listed) {
      if (std::binary_search(names.begin(), names.end(), folder + file)) continue;
      return absl::NotFoundError(absl::StrCat(JoinPath(directory, folder + file),
                                              " is not there, but ", path,
                                              " lists it; fetch or make the directory as a whole"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FilesToPut(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator entries(directory, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    const fs::directory_entry& entry = *entries;
    const std::string base = entry.path().filename().string();
    if (!base.empty() && base.front() == '.') {
      entries.disable_recursion_pending();
      continue;
    }
    const std::string name = entry.path().lexically_relative(directory).generic_string();
    PENSTOCK_ASSIGN_OR_RETURN(const bool enters, Visit(entry, name, names));
    if (!enters) entries.disable_recursion_pending();
  }
  if (error) return FileError("read", directory, error.value());
  if (names.empty()) return absl::InvalidArgumentError(absl::StrCat(directory, " has no files"));
  std::sort(names.begin(), names.end());
  PENSTOCK_RETURN_IF_ERROR(CheckIsWhole(directory, names));
  return names;
}

absl::StatusOr<std::vector<int64_t>> SizesOf(const std::string& directory,
                                             const std::vector<std::string>& names) {
  std::vector<int64_t> sizes;
  for (const std::string& name : names) {
    const std::string path = JoinPath(directory, name);
    std::error_code error;
    sizes.push_back(static_cast<int64_t>(fs::file_size(path, error)));
    if (error) return FileError("look at", path, error.value());
  }
  return sizes;
}

}  // namespace penstock
