// DirectoryLock: that one process at a time writes checkpoints to a directory.
//
// A coordinator holds it for each job that is under way, and so does the one inside `penstock train`;
// two of them in one directory would sweep away and overwrite each other's files. It is an flock of a
// file in the directory, so it ends with its process, however that ends; the file stays.
//
// Thread-compatible.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace penstock {

class DirectoryLock {
 public:
  // The locked file's name in the directory.
  static constexpr char kFileName[] = ".penstock.lock";

  // REQUIRES: `directory` exists. Never waits.
  // Errors: FailedPrecondition (a process holds it: named by number and host), Unimplemented (the
  // file system has no locks), those of creating a file.
  static absl::StatusOr<std::shared_ptr<DirectoryLock>> Take(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  explicit DirectoryLock(int file) : file_(file) {}
  const int file_;
};

}  // namespace penstock
