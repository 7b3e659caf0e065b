// CheckpointParts: the files of checkpoints that come from workers, and go to them, part by part (checkpoint_files.proto). A file
// that comes is NAME.part beside its place until it is whole, so that a staging directory has whole files under their names.
//
// A part may come again, and late. A file that is whole is not written again. A staging directory that a commit has taken away
// is not made again: the manifest of the checkpoint says whose it is. One that was discarded may be made again, and is then
// removed with the next commit of its attempt, or with what dead attempts left. A commit removes each NAME.part that it finds.
//
// Nothing is kept in memory: a coordinator that was started again goes on where the disk ends. Nor is it asked who leads. A part
// that a leader of before writes late goes into the staging directory of an attempt, whose bytes are the same, whichever leader
// takes them, and a commit reads all of them back.
//
// Thread safety: all methods may be called from any thread; all wait for the disk, and those of one file for each other.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/mutex.h"
#include "penstock/v1/checkpoint_files.pb.h"

namespace penstock {

class CheckpointParts {
 public:
  // `files` are confined to the directories that workers may use, and outlive this.
  explicit CheckpointParts(Files& files) : files_(files) {}

  // Errors of both: see the service. REQUIRES: the part came undamaged.
  absl::StatusOr<v1::WritePartResponse> Write(const v1::WritePartRequest& request);
  absl::StatusOr<v1::ReadPartResponse> Read(const v1::ReadPartRequest& request);

 private:
  // Whether a file of this size has its name.
  absl::StatusOr<bool> IsWhole(const std::string& path, int64_t size_bytes);
  // Returns how many bytes have come of a file; if that is all, it has its name.
  absl::StatusOr<int64_t> HeldBytes(const std::string& path, int64_t size_bytes);
  absl::Status Name(const std::string& path);
  // Makes the file's staging directory. Errors also: FailedPrecondition (its checkpoint is committed).
  absl::Status Begin(const std::string& path);
  Mutex& MutexOf(const std::string& path);

  Files& files_;
  std::array<Mutex, 16> mutexes_;  // each for some of the paths
};

}  // namespace penstock
