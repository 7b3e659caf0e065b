// ConfinedFiles: the files below some directories, and no others. For paths from outside, such as a job's its data
// and its checkpoints.
//
// The kernel walks each path and stops where it leads out (openat2, RESOLVE_BENEATH): by another name, by "..", by
// a symbolic link, whatever else changes meanwhile. So nothing is decided by looking at a path's letters. Links that
// stay inside are followed.
//
// Thread safety: as Files. Errors also: PermissionDenied for a path that leads out.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_tree.h"

namespace penstock {

// Flags and mode with which a process opens a file of its own, such as a lock, in a directory where others may have put
// something else under its name: a link, or a pipe, which would wait for a reader.
inline constexpr int kOwnFileFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
inline constexpr mode_t kOwnFileMode = 0644;
// Takes over `fd`, which open(2) returned; -1 means that errno has its error. Errors: FailedPrecondition (`path` is
// a link, or no regular file), those of FileTree.
absl::StatusOr<Descriptor> OpenOwnFile(const std::string& path, int fd);

// `path` from the root of the file system, without "." and "..", as seen from the working directory of now.
std::string AbsolutePath(const std::string& path);

class ConfinedFiles final : public FileTree {
 public:
  // Without roots there are no files at all. Relative roots start in the working directory of now, as relative paths will.
  // Errors: NotFound (a root is no directory), Unimplemented (the kernel cannot confine, before Linux 5.6).
  static absl::StatusOr<std::unique_ptr<ConfinedFiles>> Open(absl::Span<const std::string> roots);

  // See OpenOwnFile. Errors also: PermissionDenied for a path that leads out.
  absl::StatusOr<Descriptor> OpenOwn(const std::string& path) const;

 protected:
  int Open(const std::string& path, int flags, mode_t mode) const override;

 private:
  struct Root {
    std::string path;  // absolute, without "/" at its end
    Descriptor directory;
  };
  explicit ConfinedFiles(std::vector<Root> roots, std::string working_directory)
      : roots_(std::move(roots)), working_directory_(std::move(working_directory)) {}

  const std::vector<Root> roots_;
  const std::string working_directory_;
};

}  // namespace penstock
