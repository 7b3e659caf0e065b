// DirectoryLock: makes sure that one process at a time writes checkpoints to a directory.
//
// A coordinator holds it for each job that is under way, and so does the one inside `penstock train`;
// two of them in one directory would sweep away and overwrite each other's files. It is an flock of a
// file in the directory, so it ends with its process, however that ends; the file stays.
//
// Thread-compatible.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_tree.h"

namespace penstock {

// Opens the lock's file for reading and writing, and makes it if there is none. What is written there must not reach
// another file, so it follows no link at the path's end and opens regular files alone.
using LockFileOpener = std::function<absl::StatusOr<Descriptor>(const std::string& path)>;

// Opens without more confinement than this process has. Errors: those of FileTree, FailedPrecondition (a link, a pipe).
absl::StatusOr<Descriptor> OpenLockFile(const std::string& path);

// Returns whether a directory was refused because another process holds it.
bool IsHeldByAnother(const absl::Status& status);

class DirectoryLock {
 public:
  // The locked file's name in the directory.
  static constexpr char kFileName[] = ".penstock.lock";

  // REQUIRES: `directory` exists. Never waits.
  // Errors: FailedPrecondition (a process holds it: named by number and host), Unimplemented (the
  // file system has no locks), those of `open`.
  static absl::StatusOr<std::shared_ptr<DirectoryLock>> Take(
      const std::string& directory, const LockFileOpener& open = OpenLockFile);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  explicit DirectoryLock(Descriptor file) : file_(std::move(file)) {}
  const Descriptor file_;
};

}  // namespace penstock
