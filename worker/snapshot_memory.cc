#include "worker/snapshot_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

// JOB/SNAPSHOT/FILE
struct SnapshotPath {
  std::string job;        // "JOB/"
  std::string directory;  // "JOB/SNAPSHOT/"
};

absl::StatusOr<SnapshotPath> ParsePath(const std::string& path) {
  const size_t job_end = path.find('/');
  const size_t directory_end = path.rfind('/');
  const bool has_parts = job_end != std::string::npos && job_end > 0 &&
                         directory_end > job_end + 1 && directory_end + 1 < path.size() &&
                         path.size() <= SnapshotMemory::kPathBytesMax;
  if (has_parts && path.find('/', job_end + 1) == directory_end) {
    return SnapshotPath{path.substr(0, job_end + 1), path.substr(0, directory_end + 1)};
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path.substr(0, SnapshotMemory::kPathBytesMax),
                   ": is no file of a snapshot, whose path is JOB/SNAPSHOT/FILE and has at most ",
                   SnapshotMemory::kPathBytesMax, " bytes"));
}

}  // namespace

absl::StatusOr<SnapshotMemory::File*> SnapshotMemory::Begin(const std::string& path,
                                                            int64_t size_bytes) {
  PENSTOCK_ASSIGN_OR_RETURN(const SnapshotPath parsed, ParsePath(path));
  std::set<std::string> directories;
  for (auto file = files_.lower_bound(parsed.job);
       file != files_.end() && absl::StartsWith(file->first, parsed.job); ++file) {
    directories.insert(file->first.substr(0, file->first.rfind('/') + 1));
  }
  const bool is_new_job = directories.empty();
  directories.insert(parsed.directory);
  const auto needed = needed_.find(parsed.job);
  const auto may_go = [&](const std::string& directory) {
    return directory < parsed.directory && (needed == needed_.end() || directory != needed->second);
  };
  while (directories.size() > kSnapshotsMax) {
    const auto oldest = std::find_if(directories.begin(), directories.end(), may_go);
    if (oldest == directories.end()) break;
    Remove(*oldest, "");
    directories.erase(oldest);
  }
  if (directories.size() > kSnapshotsMax) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": there are later snapshots of this job already"));
  }
  if (const auto old = files_.find(path); old != files_.end()) {
    bytes_ -= old->second.size_bytes;
    files_.erase(old);
  }
  if (size_bytes < 0 || size_bytes > bytes_max_ - bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": has ", size_bytes, " bytes, and snapshots have ", bytes_, " of the ",
                     bytes_max_, " bytes that they may have (--snapshot-memory of the worker)"));
  }
  if (files_.size() >= kFilesMax || (is_new_job && JobsHere().size() >= kJobsMax)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": there are snapshots of too many jobs, or of too many files"));
  }
  bytes_ += size_bytes;
  File& file = files_[path];
  file.size_bytes = size_bytes;
  return &file;
}

absl::StatusOr<const SnapshotMemory::File*> SnapshotMemory::FindWhole(
    const std::string& path) const {
  const auto file = files_.find(path);
  if (file != files_.end() && file->second.is_whole()) return &file->second;
  return absl::NotFoundError(absl::StrCat(path, ": is not in this worker's memory"));
}

absl::StatusOr<std::string> SnapshotMemory::Read(const std::string& path, int64_t size_bytes_max) {
  MutexLock lock(mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(const File* const file, FindWhole(path));
  if (file->size_bytes > size_bytes_max) {
    return absl::OutOfRangeError(absl::StrCat(path, ": has ", file->size_bytes,
                                              " bytes, expected at most ", size_bytes_max));
  }
  return file->content;
}

absl::Status SnapshotMemory::WriteDurably(const std::string& path,
                                          absl::Span<const absl::string_view> pieces) {
  size_t size_bytes = 0;
  for (const absl::string_view piece : pieces) size_bytes += piece.size();
  std::string content;  // outside of the lock, for it may be large
  content.reserve(size_bytes);
  for (const absl::string_view piece : pieces) absl::StrAppend(&content, piece);
  MutexLock lock(mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(File* const file, Begin(path, static_cast<int64_t>(content.size())));
  file->content = std::move(content);
  return absl::OkStatus();
}

absl::Status SnapshotMemory::WritePart(const std::string& path, int64_t size_bytes, int64_t offset,
                                       absl::string_view bytes) {
  MutexLock lock(mutex_);
  const auto found = files_.find(path);
  File* file = found == files_.end() ? nullptr : &found->second;
  if (file == nullptr && offset == 0) {
    PENSTOCK_ASSIGN_OR_RETURN(file, Begin(path, size_bytes));
  }
  const int64_t had = file == nullptr ? 0 : static_cast<int64_t>(file->content.size());
  const auto more = static_cast<int64_t>(bytes.size());
  if (file == nullptr || file->size_bytes != size_bytes || offset < 0 || offset > had ||
      more > size_bytes - offset) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": is sent ", bytes.size(), " bytes from ", offset, " on of ", size_bytes,
        "; expected what follows on ", had, " of ", file == nullptr ? 0 : file->size_bytes));
  }
  if (offset + more > had) absl::StrAppend(&file->content, bytes.substr(had - offset));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SnapshotMemory::SizeOf(const std::string& path) const {
  MutexLock lock(mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(const File* const file, FindWhole(path));
  return file->size_bytes;
}

absl::StatusOr<std::string> SnapshotMemory::ReadPart(const std::string& path, int64_t offset,
                                                     int64_t bytes_max) const {
  MutexLock lock(mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(const File* const file, FindWhole(path));
  if (offset < 0 || offset > file->size_bytes || bytes_max < 0) {
    return absl::OutOfRangeError(absl::StrCat(path, ": is asked for ", bytes_max, " bytes from ",
                                              offset, " on, and has ", file->size_bytes));
  }
  return file->content.substr(offset, bytes_max);
}

std::vector<std::string> SnapshotMemory::Jobs() const {
  MutexLock lock(mutex_);
  return JobsHere();
}

std::vector<std::string> SnapshotMemory::JobsHere() const {
  std::vector<std::string> jobs;
  for (const auto& [path, file] : files_) {
    std::string job = path.substr(0, path.find('/'));
    if (jobs.empty() || jobs.back() != job) jobs.push_back(std::move(job));
  }
  return jobs;
}

void SnapshotMemory::KeepFrom(const std::string& job_id, const std::string& directory) {
  MutexLock lock(mutex_);
  Remove(absl::StrCat(job_id, "/"), directory);
  needed_[absl::StrCat(job_id, "/")] = absl::StrCat(directory, "/");
}

void SnapshotMemory::Forget(const std::string& job_id) {
  MutexLock lock(mutex_);
  Remove(absl::StrCat(job_id, "/"), "");
  needed_.erase(absl::StrCat(job_id, "/"));
}

void SnapshotMemory::KeepNeeded(const v1::HeartbeatRequest& request,
                                const v1::HeartbeatResponse& answer) {
  for (const std::string& job : request.snapshot_jobs()) {
    const auto kept =
        std::find_if(answer.kept().begin(), answer.kept().end(),
                     [&](const v1::KeptSnapshots& candidate) { return candidate.job_id() == job; });
    if (kept == answer.kept().end()) {
      Forget(job);
    } else if (!kept->first_directory().empty()) {
      KeepFrom(job, kept->first_directory());
    }
  }
}

void SnapshotMemory::Remove(const std::string& prefix, const std::string& end) {
  auto file = files_.lower_bound(prefix);
  while (file != files_.end() && absl::StartsWith(file->first, prefix) &&
         (end.empty() || file->first < end)) {
    bytes_ -= file->second.size_bytes;
    file = files_.erase(file);
  }
}

int64_t SnapshotMemory::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace penstock
