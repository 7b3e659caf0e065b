#include "base/confined_files.h"

#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace penstock {
namespace {

int OpenBelow(int root, const std::string& path, int flags, mode_t mode) {
  open_how how = {};
  how.flags = static_cast<unsigned int>(flags | O_CLOEXEC);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  constexpr int kAttempts = 100;
  long fd = -1;
  // EAGAIN: a rename somewhere made the kernel unsure.
  for (int i = 0; i < kAttempts; ++i) {
    fd = syscall(SYS_openat2, root, path.c_str(), &how, sizeof how);
    if (fd >= 0 || errno != EAGAIN) break;
  }
  return static_cast<int>(fd);
}

// Sets `rest` to the part of `path` below `root`, or ".". False if it lies elsewhere.
bool SplitOff(const std::string& root, const std::string& path, std::string& rest) {
  absl::string_view left = path;
  if (!absl::ConsumePrefix(&left, root)) return false;
  if (!left.empty() && left.front() != '/') return false;  // /data2 is not below /data
  while (absl::ConsumePrefix(&left, "/")) {
  }
  rest = left.empty() ? "." : std::string(left);
  return true;
}

}  // namespace

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  std::string absolute = std::filesystem::path(JoinPath(here, path)).lexically_normal().string();
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

absl::StatusOr<Descriptor> OpenOwnFile(const std::string& path, int fd) {
  Descriptor file(fd);
  if (!file.ok() && errno != ELOOP) return FileError("open", path, errno);
  struct stat info = {};
  if (file.ok() && fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode)) return file;
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot open ", path, ": it is ", file.ok() ? "no regular file" : "a symbolic link",
      ", and this process writes a file of its own there; remove it"));
}

absl::StatusOr<std::unique_ptr<ConfinedFiles>> ConfinedFiles::Open(
    absl::Span<const std::string> roots) {
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  std::vector<Root> opened;
  for (const std::string& root : roots) {
    std::string path = AbsolutePath(root);
    if (path == "/") path.clear();  // all paths begin with it
    Descriptor directory(open(absl::StrCat(path, "/").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory.ok()) return FileError("open directory", path, errno);
    if (Descriptor probe(OpenBelow(directory.get(), ".", O_PATH | O_DIRECTORY, 0)); !probe.ok()) {
      return absl::UnimplementedError(absl::StrCat(
          "cannot confine files to ", path, ": ", std::string(std::strerror(errno)),
          "; that needs openat2, Linux 5.6 or later (a container's seccomp filter may forbid it)"));
    }
    opened.push_back({std::move(path), std::move(directory)});
  }
  return std::unique_ptr<ConfinedFiles>(new ConfinedFiles(std::move(opened), here));
}

absl::StatusOr<Descriptor> ConfinedFiles::OpenOwn(const std::string& path) const {
  return OpenOwnFile(path, Open(path, kOwnFileFlags, kOwnFileMode));
}

int ConfinedFiles::Open(const std::string& path, int flags, mode_t mode) const {
  // A path with a zero byte would be another one to the kernel.
  if (path.find('\0') != std::string::npos) {
    errno = EINVAL;
    return -1;
  }
  const std::string absolute = JoinPath(working_directory_, path);
  int error = EXDEV;
  for (const Root& root : roots_) {
    std::string rest;
    if (!SplitOff(root.path, absolute, rest)) continue;
    const int fd = OpenBelow(root.directory.get(), rest, flags, mode);
    if (fd >= 0 || errno != EXDEV) return fd;
    error = errno;
  }
  errno = error;
  return -1;
}

}  // namespace penstock
