#include "base/file_tree.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/fault_points.h"
#include "base/status.h"

namespace penstock {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

absl::Status WriteAll(int fd, const std::string& path, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return FileError("write", path, errno);
    }
    bytes.remove_prefix(written);
  }
  return absl::OkStatus();
}

// What a file is made of, piece by piece up to an empty one.
using NextPiece = absl::FunctionRef<absl::StatusOr<absl::string_view>()>;

absl::Status WriteAndSync(int fd, const std::string& path, NextPiece next) {
  PENSTOCK_FAULT_POINT_STATUS(kFileBeforeWrite);
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const absl::string_view piece, next());
    if (piece.empty()) break;
    PENSTOCK_RETURN_IF_ERROR(WriteAll(fd, path, piece));
    PENSTOCK_FAULT_POINT(kFileDuringWrite);
  }
  PENSTOCK_FAULT_POINT_STATUS(kFileBeforeFsync);
  // A failed fsync is never retried: the kernel may already have dropped the pages.
  if (fsync(fd) != 0) return FileError("sync", path, errno);
  PENSTOCK_FAULT_POINT(kFileAfterFsync);
  return absl::OkStatus();
}

absl::Status WriteSyncAndClose(int fd, const std::string& path, NextPiece next) {
  absl::Status status = WriteAndSync(fd, path, next);
  if (close(fd) != 0 && status.ok()) status = FileError("close", path, errno);
  return status;
}

// The size of an open file that is to be written. Errors: FailedPrecondition (it is not a regular file), those of FileError.
absl::StatusOr<int64_t> SizeToWrite(int fd, const std::string& path) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return FileError("stat", path, errno);
  if (S_ISREG(info.st_mode)) return info.st_size;
  return absl::FailedPreconditionError(
      absl::StrCat("cannot write ", path, ": is not a file but a pipe or device"));
}

absl::Status WriteEndAndSync(int fd, const std::string& path, int64_t offset,
                             absl::string_view bytes) {
  if (ftruncate(fd, offset) != 0 || lseek(fd, offset, SEEK_SET) < 0) {
    return FileError("shorten", path, errno);
  }
  PENSTOCK_RETURN_IF_ERROR(WriteAll(fd, path, bytes));
  return fdatasync(fd) == 0 ? absl::OkStatus() : FileError("sync", path, errno);
}

// Reads `size` bytes from `offset` on, or fewer if the file ends before. Returns how many there were.
absl::StatusOr<size_t> ReadUpTo(int fd, const std::string& path, int64_t offset, char* bytes,
                                size_t size) {
  size_t filled = 0;
  while (filled < size) {
    const ssize_t got =
        pread(fd, bytes + filled, size - filled, offset + static_cast<off_t>(filled));
    if (got < 0) {
      if (errno == EINTR) continue;
      return FileError("read", path, errno);
    }
    if (got == 0) break;
    filled += got;
  }
  return filled;
}

class TreeFile final : public RandomAccessFile {
 public:
  TreeFile(std::string path, Descriptor file, int64_t size_bytes)
      : path_(std::move(path)), file_(std::move(file)), size_bytes_(size_bytes) {}

  int64_t size_bytes() const override { return size_bytes_; }
  absl::Status Read(int64_t offset, absl::Span<std::byte> bytes) const override {
    PENSTOCK_ASSIGN_OR_RETURN(
        const size_t filled,
        ReadUpTo(file_.get(), path_, offset, reinterpret_cast<char*>(bytes.data()), bytes.size()));
    if (filled == bytes.size()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path_, " ends at byte ", offset + filled, ", but ",
                                            bytes.size(), " bytes from ", offset,
                                            " on were expected"));
  }
  void WillNeed(int64_t offset, int64_t size_bytes) const override {
    // An advice: where it cannot be taken, Read waits.
    (void)posix_fadvise(file_.get(), offset, size_bytes, POSIX_FADV_WILLNEED);
  }

 private:
  const std::string path_;
  const Descriptor file_;
  const int64_t size_bytes_;
};

// The names in the directory that `fd` is, without order. Takes `fd` over. 0, or an errno.
int ReadNames(Descriptor fd, std::vector<std::string>& names) {
  const std::unique_ptr<DIR, CloseDirectory> directory(fdopendir(fd.get()));
  if (directory == nullptr) return errno;
  fd.Release();
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(directory.get());
    if (entry == nullptr) return errno;
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

// Removes `name` in `directory` with all in it, and follows no link. 0, or an errno.
int RemoveTree(int directory, const std::string& name) {
  if (unlinkat(directory, name.c_str(), 0) == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR && errno != EPERM) return errno;
  Descriptor inner(
      openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!inner.ok()) return errno;
  std::vector<std::string> names;
  const int own = dup(inner.get());
  if (const int error = ReadNames(Descriptor(own), names); error != 0) return error;
  for (const std::string& child : names) {
    if (const int error = RemoveTree(inner.get(), child); error != 0) return error;
    PENSTOCK_FAULT_POINT(kFileDuringRemoval);
  }
  return unlinkat(directory, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : errno;
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

absl::Status FileError(absl::string_view verb, const std::string& path, int error) {
  if (error == EXDEV && verb != "rename") {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot ", verb, " ", path,
                     ": it leads out of the directories that this process may use "
                     "(--data-root and --checkpoint-root say which)"));
  }
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

absl::StatusOr<FileTree::Place> FileTree::PlaceOf(absl::string_view verb,
                                                  const std::string& path) const {
  // "a/b/" means b.
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const std::string name = std::filesystem::path(trimmed).filename().string();
  if (name.empty() || name == "." || name == "..") return FileError(verb, path, EINVAL);
  Descriptor directory(Open(ParentOf(trimmed), O_PATH | O_DIRECTORY, 0));
  if (!directory.ok()) return FileError(verb, path, errno);
  return Place{std::move(directory), name};
}

bool FileTree::IsDirectory(const std::string& path) const {
  return Descriptor(Open(path, O_PATH | O_DIRECTORY, 0)).ok();
}

absl::StatusOr<FileTree::Opened> FileTree::OpenToRead(const std::string& path) const {
  // Without O_NONBLOCK, opening a named pipe waits for a writer.
  Descriptor file(Open(path, O_RDONLY | O_NONBLOCK, 0));
  if (!file.ok()) return FileError("open", path, errno);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return FileError("stat", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot read ", path,
        S_ISDIR(info.st_mode) ? ": is a directory" : ": is not a file but a pipe or device"));
  }
  return Opened{std::move(file), info.st_size};
}

absl::StatusOr<std::string> FileTree::Read(const std::string& path, int64_t size_bytes_max) {
  PENSTOCK_ASSIGN_OR_RETURN(const Opened opened, OpenToRead(path));
  if (opened.size_bytes > size_bytes_max) {
    return absl::OutOfRangeError(absl::StrCat(path, " has ", opened.size_bytes,
                                              " bytes, more than the limit of ", size_bytes_max));
  }
  std::string content(opened.size_bytes, '\0');
  PENSTOCK_ASSIGN_OR_RETURN(const size_t filled,
                            ReadUpTo(opened.file.get(), path, 0, content.data(), content.size()));
  content.resize(filled);
  return content;
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> FileTree::OpenRandomAccess(
    const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(Opened opened, OpenToRead(path));
  return std::make_unique<TreeFile>(path, std::move(opened.file), opened.size_bytes);
}

absl::Status FileTree::WriteDurably(const std::string& path,
                                    absl::Span<const absl::string_view> pieces) {
  return WriteInParts(path, [&pieces]() -> absl::StatusOr<absl::string_view> {
    while (!pieces.empty()) {
      const absl::string_view piece = pieces.front();
      pieces.remove_prefix(1);
      if (!piece.empty()) return piece;
    }
    return absl::string_view();
  });
}

absl::Status FileTree::WriteInParts(const std::string& path,
                                    absl::FunctionRef<absl::StatusOr<absl::string_view>()> next) {
  // Without O_NONBLOCK, a named pipe under that name waits for a reader.
  const int fd = Open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0644);
  if (fd < 0) return FileError("create", path, errno);
  if (const absl::Status writable = SizeToWrite(fd, path).status(); !writable.ok()) {
    close(fd);
    return writable;
  }
  absl::Status status = WriteSyncAndClose(fd, path, next);
  if (!status.ok()) RemoveAll(path).IgnoreError();  // the first error says more
  return status;
}

absl::Status FileTree::WriteEndDurably(const std::string& path, int64_t offset,
                                       absl::string_view bytes) {
  constexpr int kFlags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK;
  const Descriptor file(offset == 0 ? Open(path, kFlags | O_CREAT, 0644) : Open(path, kFlags, 0));
  if (!file.ok()) return FileError(offset == 0 ? "create" : "open", path, errno);
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size_bytes, SizeToWrite(file.get(), path));
  if (size_bytes < offset) {
    return absl::OutOfRangeError(absl::StrCat(path, " ends at byte ", size_bytes,
                                              ", so nothing can be written from ", offset, " on"));
  }
  absl::Status status = WriteEndAndSync(file.get(), path, offset, bytes);
  if (!status.ok()) (void)!ftruncate(file.get(), offset);  // its length says what has come
  return status;
}

absl::Status FileTree::RenameDurably(const std::string& from, const std::string& to) {
  const std::string verb = absl::StrCat("rename ", from, " to");
  PENSTOCK_ASSIGN_OR_RETURN(const Place source, PlaceOf(verb, from));
  PENSTOCK_ASSIGN_OR_RETURN(const Place target, PlaceOf(verb, to));
  PENSTOCK_FAULT_POINT_STATUS(kFileBeforeRename);
  if (renameat(source.directory.get(), source.name.c_str(), target.directory.get(),
               target.name.c_str()) != 0) {
    return FileError(verb, to, errno);
  }
  PENSTOCK_FAULT_POINT(kFileAfterRename);
  PENSTOCK_RETURN_IF_ERROR(SyncDirectory(ParentOf(to)));
  PENSTOCK_FAULT_POINT(kFileAfterParentFsync);
  return absl::OkStatus();
}

absl::Status FileTree::SyncDirectory(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  const Descriptor directory(Open(name, O_RDONLY | O_DIRECTORY, 0));
  if (!directory.ok()) return FileError("open", name, errno);
  if (fsync(directory.get()) != 0) return FileError("sync", name, errno);
  return absl::OkStatus();
}

absl::Status FileTree::CreateDirectories(const std::string& path) {
  // Up to what there is, then down again.
  std::vector<std::string> missing;
  std::string directory = path;
  while (!directory.empty() && directory != "/" && !IsDirectory(directory)) {
    // A file is in the way.
    const int error = errno == ENOTDIR ? EEXIST : errno;
    if (error != ENOENT) return FileError("create directory", directory, error);
    missing.push_back(directory);
    directory = std::filesystem::path(directory).parent_path().string();
  }
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    if (IsDirectory(*it)) continue;  // "a/b/" and "a/b/.." are there as soon as a/b is
    PENSTOCK_ASSIGN_OR_RETURN(const Place place, PlaceOf("create directory", *it));
    if (mkdirat(place.directory.get(), place.name.c_str(), 0777) != 0 &&
        !(errno == EEXIST && IsDirectory(*it))) {
      return FileError("create directory", *it, errno);
    }
    PENSTOCK_RETURN_IF_ERROR(SyncDirectory(ParentOf(*it)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FileTree::List(const std::string& path) {
  Descriptor directory(Open(path, O_RDONLY | O_DIRECTORY, 0));
  if (!directory.ok()) return FileError("list", path, errno);
  std::vector<std::string> names;
  if (const int error = ReadNames(std::move(directory), names); error != 0) {
    return FileError("list", path, error);
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status FileTree::RemoveAll(const std::string& path) {
  const absl::StatusOr<Place> place = PlaceOf("remove", path);
  if (absl::IsNotFound(place.status())) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(place.status());
  PENSTOCK_FAULT_POINT_STATUS(kFileBeforeRemoval);
  const int error = RemoveTree(place->directory.get(), place->name);
  return error == 0 ? absl::OkStatus() : FileError("remove", path, error);
}

bool FileTree::Exists(const std::string& path) { return Descriptor(Open(path, O_PATH, 0)).ok(); }

}  // namespace penstock
