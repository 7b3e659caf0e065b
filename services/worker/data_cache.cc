#include "services/worker/data_cache.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/file_tree.h"
#include "base/files.h"
#include "base/status.h"
#include "services/rpc/data_part.h"
#include "services/worker/part_transfer.h"

namespace penstock {
namespace {

constexpr char kViews[] = "views";

}  // namespace

void DataCache::BeginRun() {
  uses_.clear();
  // What stays takes no room of its own, and the next run that needs it finds it as it is.
  RealFiles().RemoveAll(JoinPath(store_.directory(), kViews)).IgnoreError();
}

absl::StatusOr<std::string> DataCache::Use(const std::string& sha256,
                                           absl::FunctionRef<absl::Status()> may_go_on) {
  const auto known = uses_.find(sha256);
  if (known != uses_.end()) return known->second.path;
  absl::StatusOr<DigestStore::Use> use = store_.Hold(sha256);
  if (absl::IsNotFound(use.status())) {
    PENSTOCK_RETURN_IF_ERROR(FetchOne(sha256, may_go_on));
    use = store_.Hold(sha256);
  }
  PENSTOCK_RETURN_IF_ERROR(use.status());
  std::string path = use->path;
  uses_.emplace(sha256, *std::move(use));
  return path;
}

absl::Status DataCache::Link(const PutEntry& entry, const std::string& name,
                             absl::FunctionRef<absl::Status()> may_go_on) {
  PENSTOCK_RETURN_IF_ERROR(
      RealFiles().CreateDirectories(std::filesystem::path(name).parent_path().string()));
  if (entry.size_bytes == 0) return RealFiles().WriteDurably(name, {});
  PENSTOCK_ASSIGN_OR_RETURN(const std::string path, Use(entry.sha256, may_go_on));
  if (link(path.c_str(), name.c_str()) == 0 || errno == EEXIST) return absl::OkStatus();
  return FileError("link", name, errno);
}

absl::StatusOr<std::string> DataCache::Fetch(const PutPath& put,
                                             absl::FunctionRef<bool(absl::string_view name)> wanted,
                                             absl::FunctionRef<absl::Status()> may_go_on) {
  const absl::Cleanup done = [this] { parts_ = 0; };
  if (!put.is_directory) return Use(put.sha256, may_go_on);
  const auto read = [&](const std::string& sha256,
                        int64_t size_bytes_max) -> absl::StatusOr<std::string> {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string path, Use(sha256, may_go_on));
    return RealFiles().Read(path, size_bytes_max);
  };
  PENSTOCK_ASSIGN_OR_RETURN(const PutListing listing, ReadPutListing(read, put));
  const std::vector<const PutEntry*> entries = listing.At(put.name);
  if (entries.empty()) return NotInPutDirectory(put, listing);
  const std::string view = JoinPath(JoinPath(store_.directory(), kViews), put.sha256);
  for (const PutEntry* entry : entries) {
    if (!wanted(NameBelow(entry->name, put.name))) continue;
    const absl::Status linked = Link(*entry, JoinPath(view, entry->name), may_go_on);
    if (!linked.ok()) return Annotate(linked, PutPath{put.sha256, true, entry->name}.ToString());
  }
  const std::string path = put.name.empty() ? view : JoinPath(view, put.name);
  if (listing.Find(put.name) == nullptr) {  // a directory, of which nothing may be wanted yet
    PENSTOCK_RETURN_IF_ERROR(RealFiles().CreateDirectories(
        HasPattern(put.name) ? std::filesystem::path(path).parent_path().string() : path));
  }
  return path;
}

absl::Status DataCache::FetchOne(const std::string& sha256,
                                 absl::FunctionRef<absl::Status()> may_go_on) {
  PENSTOCK_ASSIGN_OR_RETURN(const DigestStore::File file, store_.Find(sha256));
  notice_(absl::StrCat("fetches sha256:", sha256, " from byte ", file.held_bytes));
  int64_t held = file.held_bytes;
  if (file.size_bytes == 0 || held < file.size_bytes) {
    const auto fetch = [&](int64_t part_bytes_max) -> absl::StatusOr<bool> {
      PENSTOCK_ASSIGN_OR_RETURN(const bool over, FetchPart(sha256, part_bytes_max, held));
      ++parts_;
      return over;
    };
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(TransferParts(may_go_on, fetch), absl::StrCat("cannot fetch sha256:", sha256)));
  }
  return store_.Finish(sha256);
}

absl::StatusOr<bool> DataCache::FetchPart(const std::string& sha256, int64_t part_bytes_max,
                                          int64_t& held) {
  v1::ReadDataRequest request;
  request.set_sha256(sha256);
  request.set_offset(held);
  request.set_bytes_max(part_bytes_max);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ReadDataResponse part, read_(request, kPartCallTimeout));
  PENSTOCK_RETURN_IF_ERROR(CheckPart(part));
  PENSTOCK_ASSIGN_OR_RETURN(held, store_.Append(sha256, part.size_bytes(), held, part.bytes()));
  return held >= part.size_bytes();
}

}  // namespace penstock
