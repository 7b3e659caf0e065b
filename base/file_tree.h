// FileTree: the Files of a disk, all by way of one function that opens a path. Which paths there are is that
// function's business: RealFiles() has the whole machine's, ConfinedFiles those below some directories.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"

namespace penstock {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  bool ok() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// The error of a failed system call on `path`, in the words of Files. EXDEV: the path leads out of where it may.
absl::Status FileError(absl::string_view verb, const std::string& path, int error);

class FileTree : public Files {
 public:
  absl::StatusOr<std::string> Read(const std::string& path, int64_t size_bytes_max) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(
      const std::string& path) override;
  absl::Status WriteDurably(const std::string& path,
                            absl::Span<const absl::string_view> pieces) override;
  absl::Status WriteInParts(const std::string& path,
                            absl::FunctionRef<absl::StatusOr<absl::string_view>()> next) override;
  absl::Status WriteEndDurably(const std::string& path, int64_t offset,
                               absl::string_view bytes) override;
  absl::Status RenameDurably(const std::string& from, const std::string& to) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  absl::Status RemoveAll(const std::string& path) override;
  bool Exists(const std::string& path) override;

 protected:
  // Calls open(2) with O_CLOEXEC. A descriptor, or -1 and errno.
  virtual int Open(const std::string& path, int flags, mode_t mode) const = 0;

 private:
  // A path's directory, open, and its last name.
  struct Place {
    Descriptor directory;
    std::string name;
  };
  // An open file and its size.
  struct Opened {
    Descriptor file;
    int64_t size_bytes;
  };
  absl::StatusOr<Opened> OpenToRead(const std::string& path) const;
  absl::StatusOr<Place> PlaceOf(absl::string_view verb, const std::string& path) const;
  bool IsDirectory(const std::string& path) const;
};

}  // namespace penstock
