#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::Status SystemError(absl::string_view verb, const std::string& path, int error) {
  const std::string message = absl::StrCat("cannot ", verb, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    case EEXIST:
    case ENOTEMPTY:
    case EISDIR:
      return absl::AlreadyExistsError(message);
    default:
      return absl::InternalError(message);
  }
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status WriteAll(int fd, const std::string& path, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError("write", path, errno);
    }
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

class MachineFiles : public Files {
 public:
  absl::StatusOr<std::string> Read(const std::string& path, int64_t size_bytes_max) override {
    // Without O_NONBLOCK, opening a named pipe waits for somebody who writes to it.
    Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (file.get() < 0) return SystemError("open", path, errno);
    struct stat info;
    if (fstat(file.get(), &info) != 0) return SystemError("stat", path, errno);
    if (!S_ISREG(info.st_mode)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot read ", path,
          S_ISDIR(info.st_mode) ? ": is a directory" : ": is not a file but a pipe or device"));
    }
    if (info.st_size > size_bytes_max) {
      return absl::OutOfRangeError(absl::StrCat(path, " has ", info.st_size,
                                                " bytes, more than the limit of ", size_bytes_max));
    }
    std::string content(info.st_size, '\0');
    size_t filled = 0;
    while (filled < content.size()) {
      const ssize_t got = read(file.get(), content.data() + filled, content.size() - filled);
      if (got < 0) {
        if (errno == EINTR) continue;
        return SystemError("read", path, errno);
      }
      if (got == 0) break;
      filled += got;
    }
    content.resize(filled);
    return content;
  }

  absl::Status WriteDurably(const std::string& path,
                            absl::Span<const absl::string_view> pieces) override {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return SystemError("create", path, errno);
    absl::Status status = WriteSyncAndClose(fd, path, pieces);
    if (!status.ok()) unlink(path.c_str());
    return status;
  }

  absl::Status RenameDurably(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) {
      return SystemError(absl::StrCat("rename ", from, " to"), to, errno);
    }
    return SyncDirectory(std::filesystem::path(to).parent_path().string());
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const std::string name = path.empty() ? "." : path;
    Descriptor directory(open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.get() < 0) return SystemError("open", name, errno);
    if (fsync(directory.get()) != 0) return SystemError("sync", name, errno);
    return absl::OkStatus();
  }

  absl::Status CreateDirectories(const std::string& path) override {
    std::filesystem::path directory;
    for (const std::filesystem::path& part : std::filesystem::path(path)) {
      directory /= part;
      if (mkdir(directory.c_str(), 0777) == 0) {
        PENSTOCK_RETURN_IF_ERROR(SyncDirectory(directory.parent_path().string()));
        continue;
      }
      const int error = errno;
      std::error_code ignored;
      if (!std::filesystem::is_directory(directory, ignored)) {
        return SystemError("create directory", directory.string(), error);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
         it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) return SystemError("list", path, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status RemoveAll(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return SystemError("remove", path, error.value());
    return absl::OkStatus();
  }

  bool Exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }

 private:
  static absl::Status WriteSyncAndClose(int fd, const std::string& path,
                                        absl::Span<const absl::string_view> pieces) {
    absl::Status status;
    for (absl::string_view piece : pieces) {
      status = WriteAll(fd, path, piece);
      if (!status.ok()) break;
    }
    // A failed fsync is never retried: the kernel may already have dropped the pages.
    if (status.ok() && fsync(fd) != 0) status = SystemError("sync", path, errno);
    if (close(fd) != 0 && status.ok()) status = SystemError("close", path, errno);
    return status;
  }
};

}  // namespace

Files& RealFiles() {
  static MachineFiles files;
  return files;
}

std::string JoinPath(absl::string_view a, absl::string_view b) {
  if (a.empty() || (!b.empty() && b.front() == '/')) return std::string(b);
  if (a.back() == '/') return absl::StrCat(a, b);
  return absl::StrCat(a, "/", b);
}

}  // namespace penstock
