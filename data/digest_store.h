// DigestStore: files by their SHA-256 in a directory, which come part by part and go on after any break. The coordinator
// keeps in one what users put, and each worker in one what it fetched.
//
// HEX is a whole file, whose content was compared with its name; HEX.SIZE.part is what has come of one of SIZE bytes. A
// part is on the disk when Append returns, so after a kill a file goes on where it ends. One process at a time has
// a directory.
//
// Thread safety: all methods may be called from any thread; those of one file wait for one another. All wait for the disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file_tree.h"
#include "base/mutex.h"

namespace penstock {

struct DigestStoreOptions {
  std::string directory;
  // Of all files, those under way counted as if they were whole.
  int64_t bytes_max = 0;
  // Makes room by removing whole files that nobody uses, those first that were used longest ago. Else a file for which
  // there is no room is refused.
  bool removes_unused = false;
};

class DigestStore {
 public:
  struct File {
    std::string sha256;
    int64_t size_bytes = 0;  // of the whole file; 0: nothing is known of it
    int64_t held_bytes = 0;  // on the disk, from the beginning
    bool whole = false;      // and compared with the digest
  };
  // A whole file that is not removed to make room while this lives.
  struct Use {
    std::string path;
    std::shared_ptr<const void> holds;
  };

  // Creates the directory, if it is not there, and finds what is in it.
  // Errors: FailedPrecondition (another process has it), those of Files.
  static absl::StatusOr<std::unique_ptr<DigestStore>> Open(DigestStoreOptions options);
  DigestStore(const DigestStore&) = delete;
  DigestStore& operator=(const DigestStore&) = delete;

  // Errors of all methods: InvalidArgument if `sha256` is not 64 digits of 0-9 and a-f; Aborted if the file was removed
  // meanwhile.

  absl::StatusOr<File> Find(const std::string& sha256);
  // Adds `bytes` if the file ends at `offset`; if not, nothing changes. Returns how many bytes are held then.
  // Errors also: InvalidArgument (a size below 1, bytes beyond it, or none), FailedPrecondition (no room for it, the disk is
  // full, or a file of another size is under way).
  absl::StatusOr<int64_t> Append(const std::string& sha256, int64_t size_bytes, int64_t offset,
                                 absl::string_view bytes);
  // Compares all that has come with the digest. Idempotent.
  // Errors also: DataLoss (another digest; what had come is removed), FailedPrecondition (it has not all come).
  absl::Status Finish(const std::string& sha256);
  // At most `bytes_max` bytes of a whole file from `offset` on, and the file's size. Errors also: NotFound, OutOfRange.
  struct Part {
    std::string bytes;
    int64_t size_bytes = 0;
  };
  absl::StatusOr<Part> Read(const std::string& sha256, int64_t offset, int64_t bytes_max);
  // Errors also: NotFound (it is not there, or not whole).
  absl::StatusOr<Use> Hold(const std::string& sha256);
  // Removes a file, or what has come of it, and returns whether there was one. A reader that has it open reads on.
  absl::StatusOr<bool> Remove(const std::string& sha256);
  // Those after `after_sha256`, at most `files_max`, by digest.
  std::vector<File> List(const std::string& after_sha256, size_t files_max)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string& directory() const { return options_.directory; }

 private:
  struct Entry {
    explicit Entry(std::string digest, int64_t size)
        : sha256(std::move(digest)), size_bytes(size) {}

    const std::string sha256;
    const int64_t size_bytes;
    Mutex mutex;
    int64_t held_bytes ABSL_GUARDED_BY(mutex) = 0;
    bool whole ABSL_GUARDED_BY(mutex) = false;
    bool removed ABSL_GUARDED_BY(mutex) = false;
    int64_t used ABSL_GUARDED_BY(mutex) = 0;  // grows with each use, of any file
    std::weak_ptr<const void> user ABSL_GUARDED_BY(mutex);
  };
  using EntryRef = std::shared_ptr<Entry>;

  DigestStore(DigestStoreOptions options, Descriptor lock)
      : options_(std::move(options)), lock_(std::move(lock)) {}

  // Takes up what an earlier process left.
  absl::Status TakeUp();
  std::string PathOf(const Entry& entry, bool whole) const;
  EntryRef FindEntry(const std::string& sha256) ABSL_LOCKS_EXCLUDED(mutex_);
  // That of the file, made if there was none and there is room.
  absl::StatusOr<EntryRef> EntryFor(const std::string& sha256, int64_t size_bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t Bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom(int64_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const EntryRef& entry) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status RemoveFile(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);
  absl::Status Write(Entry& entry, absl::string_view bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);

  const DigestStoreOptions options_;
  const Descriptor lock_;

  // Taken before an entry's, never with one held.
  Mutex mutex_;
  std::map<std::string, EntryRef> entries_ ABSL_GUARDED_BY(mutex_);  // by digest
  std::atomic<int64_t> uses_ = 0;
};

}  // namespace penstock
