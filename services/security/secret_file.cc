#include "services/security/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace penstock {

namespace {

// False, and errno, if it is not written as a whole. A disk that fills up takes a part first.
bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

absl::Status WriteNewFile(const std::string& path, absl::string_view text, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  // The process' mask may have taken more away than was meant.
  const bool written = WriteAll(fd, text) && fchmod(fd, mode) == 0 && fsync(fd) == 0;
  absl::Status status = written ? absl::OkStatus() : absl::ErrnoToStatus(errno, path);
  close(fd);
  return status;
}

absl::Status ReplaceFile(const std::string& path, absl::string_view text, mode_t mode) {
  const std::string fresh = absl::StrCat(path, ".new");
  unlink(fresh.c_str());  // of a writer that was interrupted
  PENSTOCK_RETURN_IF_ERROR(WriteNewFile(fresh, text, mode));
  return RealFiles().RenameDurably(fresh, path);
}

}  // namespace penstock
