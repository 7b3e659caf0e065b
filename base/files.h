// Files: what Penstock asks of a disk, as an interface, so that tests can make it fail.
//
// Thread safety: all methods may be called from any thread. Errors carry the path and the system's
// reason: NotFound, PermissionDenied, ResourceExhausted (disk or quota full, too many open files),
// AlreadyExists, otherwise Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace penstock {

// An open file that is read in parts. It stays what it was when it was opened, whatever its path names later.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;

  virtual int64_t size_bytes() const = 0;  // when it was opened
  // Fills `bytes` with what is at `offset`. Errors also: DataLoss if the file ends before.
  virtual absl::Status Read(int64_t offset, absl::Span<std::byte> bytes) const = 0;
  // Says that these bytes will soon be read, so that the disk may begin; returns at once.
  virtual void WillNeed(int64_t /*offset*/, int64_t /*size_bytes*/) const {}
};

class FileReader {
 public:
  virtual ~FileReader() = default;

  // The whole file. Never waits for another process. Errors also: OutOfRange if it is larger than
  // `size_bytes_max`, FailedPrecondition if it is not a regular file (a directory, pipe or device).
  virtual absl::StatusOr<std::string> Read(const std::string& path, int64_t size_bytes_max) = 0;
};

class FileWriter {
 public:
  virtual ~FileWriter() = default;

  // Creates a directory and its parents, durably; existing ones are fine.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;

  // Writes `pieces` one after the other to a new file and makes it durable (fsync) before returning.
  // On error the file is removed, unless it is an old one that could not be opened.
  virtual absl::Status WriteDurably(const std::string& path,
                                    absl::Span<const absl::string_view> pieces) = 0;
};

// Files that are read and written whole, be they on a disk or over a network.
class FileStore : public FileReader, public FileWriter {};

class Files : public FileStore {
 public:
  // Does the same with what `next` gives, piece by piece up to an empty one, for a file that is too large to be held whole.
  // A piece is used up before the next one is asked for. Errors also: those of `next`, after which the file is removed.
  virtual absl::Status WriteInParts(
      const std::string& path, absl::FunctionRef<absl::StatusOr<absl::string_view>()> next) = 0;

  // Makes `bytes` the end of a file, from `offset` on, and makes its content durable, but not its name: for a file that comes
  // part after part, whose length says how much has come. At 0 the file begins, and an older one of this name is emptied. What was there
  // behind `offset` goes, also on an error of writing. Errors also: OutOfRange if the file ends before `offset`, and
  // FailedPrecondition if it is not a regular file; then nothing changes.
  virtual absl::Status WriteEndDurably(const std::string& path, int64_t offset,
                                       absl::string_view bytes) = 0;

  // A file to be read in parts, for what is too large to be held whole. Errors: as Read.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(
      const std::string& path) = 0;

  // Renames, then makes the rename durable (fsync of the parent). Replaces an existing file;
  // AlreadyExists if `to` is a directory.
  virtual absl::Status RenameDurably(const std::string& from, const std::string& to) = 0;

  // Makes the entries of a directory durable.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;

  // Names (not paths) of a directory's entries, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;

  // Removes a file or a whole directory; what does not exist is fine.
  virtual absl::Status RemoveAll(const std::string& path) = 0;

  virtual bool Exists(const std::string& path) = 0;
};

// The machine's own file system. Lives as long as the program.
Files& RealFiles();

// `a`/`b`, or `b` if it is absolute.
std::string JoinPath(absl::string_view a, absl::string_view b);

}  // namespace penstock
