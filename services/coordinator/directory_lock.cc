#include "services/coordinator/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/confined_files.h"
#include "base/files.h"
#include "base/status.h"
#include "base/utf8.h"

namespace penstock {
namespace {

constexpr size_t kHolderBytesMax = 300;
constexpr char kHeldType[] = "penstock/directory-held";  // a payload that says nothing more

// Returns "process 4711 on node1": the holder writes it into the file, for a process that finds it locked.
std::string NameOfThisProcess() {
  char host[256] = {};
  const bool named = gethostname(host, sizeof(host) - 1) == 0;
  return absl::StrCat("process ", getpid(), named ? " on " : "", host);
}

std::string ReadHolder(int file) {
  char text[kHolderBytesMax];
  const ssize_t size = pread(file, text, sizeof(text), 0);
  return size <= 0 ? "another process" : CleanUtf8(absl::string_view(text, size), kHolderBytesMax);
}

absl::Status LockError(int error, int file, const std::string& directory) {
  switch (error) {
    case EWOULDBLOCK: {
      absl::Status held = absl::FailedPreconditionError(
          absl::StrCat("checkpoint.directory: ", directory, " is in use by ", ReadHolder(file),
                       ", a coordinator or `penstock train` that writes checkpoints there; wait "
                       "for its job to end, or name another directory"));
      held.SetPayload(kHeldType, absl::Cord());
      return held;
    }
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOLCK:
      return absl::UnimplementedError(
          absl::StrCat("checkpoint.directory: ", directory,
                       " is on a file system without locks, so take care that no other "
                       "coordinator and no `penstock train` writes there"));
    default:
      return absl::ErrnoToStatus(error, absl::StrCat("cannot lock ", directory));
  }
}

}  // namespace

bool IsHeldByAnother(const absl::Status& status) {
  return status.GetPayload(kHeldType).has_value();
}

absl::StatusOr<Descriptor> OpenLockFile(const std::string& path) {
  return OpenOwnFile(path, open(path.c_str(), kOwnFileFlags, kOwnFileMode));
}

absl::StatusOr<std::shared_ptr<DirectoryLock>> DirectoryLock::Take(const std::string& directory,
                                                                   const LockFileOpener& open) {
  absl::StatusOr<Descriptor> file = open(JoinPath(directory, kFileName));
  PENSTOCK_RETURN_IF_ERROR(Annotate(file.status(), "checkpoint.directory"));
  const int fd = file->get();
  std::shared_ptr<DirectoryLock> lock(new DirectoryLock(*std::move(file)));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return LockError(errno, fd, directory);
  }
  // This is for people only, so a full disk does not matter.
  const std::string holder = NameOfThisProcess();
  if (ftruncate(fd, 0) == 0) {
    (void)!pwrite(fd, holder.data(), holder.size(), 0);
  }
  return lock;
}

}  // namespace penstock
