// SnapshotMemory: the files of snapshots that a worker keeps in memory, its own and those of its peers.
//
// A snapshot is a checkpoint on no disk: each worker keeps the files of its layers, and a peer has a copy of them
// (docs/adr/0038-snapshots-in-memory.md). Files have the names that they would have in a checkpoint, in the directory
// SnapshotDirectory (checkpoint/layout.h). A job has few snapshots at a time: a new one takes the place of the oldest, but never of
// the one that the coordinator has last said that it needs.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

class SnapshotMemory final : public FileReader, public FileWriter {
 public:
  // Of one job: the last that all workers have, the one after it, and one that a faster worker has begun.
  static constexpr size_t kSnapshotsMax = 3;
  static constexpr size_t kJobsMax = 64;
  static constexpr size_t kFilesMax = 1 << 16;
  static constexpr size_t kPathBytesMax = 1024;

  // All files together have at most `bytes_max` bytes.
  explicit SnapshotMemory(int64_t bytes_max) : bytes_max_(bytes_max) {}

  // ---- Files. Errors: InvalidArgument (a path that is none of a snapshot's), those below.
  // Errors also: NotFound (it is not here, or not whole), OutOfRange (it is longer than `size_bytes_max`).
  absl::StatusOr<std::string> Read(const std::string& path, int64_t size_bytes_max) override;
  // There is nothing to create: a directory is there as long as it has files.
  absl::Status CreateDirectories(const std::string&) override { return absl::OkStatus(); }
  // Errors also: ResourceExhausted. What "durably" means here is: until the process ends, or the job.
  absl::Status WriteDurably(const std::string& path,
                            absl::Span<const absl::string_view> pieces) override;

  // ---- Parts of files, as peers send and fetch them.
  // Adds `bytes` to a file that will have `size_bytes`, where they follow on what it has. Doing it again changes nothing.
  // Errors also: ResourceExhausted, FailedPrecondition (a part before it is missing, or the file has another size).
  absl::Status WritePart(const std::string& path, int64_t size_bytes, int64_t offset,
                         absl::string_view bytes);
  // Returns the size of a whole file. Errors also: NotFound.
  absl::StatusOr<int64_t> SizeOf(const std::string& path) const;
  // Returns at most `bytes_max` bytes of a whole file, from `offset` on. Errors also: NotFound, OutOfRange.
  absl::StatusOr<std::string> ReadPart(const std::string& path, int64_t offset,
                                       int64_t bytes_max) const;

  // ---- What may go.
  // Returns the jobs of which there are snapshots.
  std::vector<std::string> Jobs() const;
  // Removes the job's snapshots before the one in `directory`.
  void KeepFrom(const std::string& job_id, const std::string& directory);
  void Forget(const std::string& job_id);
  // Removes those of the jobs in the request that the coordinator no longer needs, as its answer says.
  void KeepNeeded(const v1::HeartbeatRequest& request, const v1::HeartbeatResponse& answer);

  int64_t bytes() const;
  // Returns whether it may have any.
  bool has_room() const { return bytes_max_ > 0; }

 private:
  struct File {
    int64_t size_bytes = 0;
    std::string content;  // whole once it has that size
    bool is_whole() const { return static_cast<int64_t>(content.size()) == size_bytes; }
  };
  std::vector<std::string> JobsHere() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins a file, for which older snapshots of its job go.
  absl::StatusOr<File*> Begin(const std::string& path, int64_t size_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<const File*> FindWhole(const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the files whose paths begin with `prefix`, up to `end` if it is not empty.
  void Remove(const std::string& prefix, const std::string& end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t bytes_max_;
  mutable Mutex mutex_;
  std::map<std::string, File> files_ ABSL_GUARDED_BY(mutex_);  // by path
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::string> needed_ ABSL_GUARDED_BY(mutex_);  // by job: "JOB/SNAPSHOT/"
};

}  // namespace penstock
