// BackgroundFile: a bounded file without a name, which a thread of its own reads and writes.
//
// It does one copy after the other, in the order in which they were asked for, so that the thread that computes only hands
// over and, if it comes too early, waits. Where the filesystem allows it the data go past the system's page cache
// (O_DIRECT), which would take the very memory that is to be saved; they then pass through one aligned buffer of
// kBufferBytes. The file has room for all its bytes from the start, where the filesystem can promise that, and is gone with
// the process. What nobody has written is zeros.
//
// Thread safety: one thread asks and waits.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "compute/offload_store.h"

namespace penstock {

class BackgroundFile {
 public:
  static constexpr int64_t kBufferBytes = 1 << 20;

  // What errors say of it.
  struct Words {
    absl::string_view what;     // "the file for offloaded stashes"
    absl::string_view content;  // "a stash"
    absl::string_view instead;  // "let fewer stages offload (pipeline.offload)"
  };
  struct Options {
    std::string directory;
    int64_t bytes = 0;
    bool direct = true;  // past the page cache, where the filesystem allows it
    Words words;
  };
  // REQUIRES: `clock` outlives the file.
  // Errors: those of the system with the directory and what to do; ResourceExhausted (the disk is full).
  static absl::StatusOr<std::unique_ptr<BackgroundFile>> Create(const Options& options,
                                                                Clock& clock);
  // Waits for the copies that are under way.
  ~BackgroundFile();

  bool direct() const { return direct_; }
  const Options& options() const { return options_; }

  // A copy in one direction.
  class Copy {
   public:
    // Of a copy into memory, once it is done.
    std::vector<Buffer> TakeBlocks() { return std::move(blocks_); }

   private:
    friend class BackgroundFile;
    bool writes_ = false;
    int64_t offset_ = 0;
    std::vector<Buffer> blocks_;
    bool done_ = false;
    absl::Status status_;
    CopySpan span_;
  };
  // Begin to copy between `blocks`, as they stand one behind the other, and the file from `offset` on.
  // REQUIRES: the room (RoomInFile) is the file's; what is written stays as it is until the end of the copy.
  std::shared_ptr<Copy> StartWriting(int64_t offset, std::vector<Buffer> blocks) {
    return Ask(/*writes=*/true, offset, std::move(blocks));
  }
  std::shared_ptr<Copy> StartReading(int64_t offset, std::vector<Buffer> blocks) {
    return Ask(/*writes=*/false, offset, std::move(blocks));
  }
  // Waits for the end of a copy. Errors: of the system with the directory.
  absl::StatusOr<CopySpan> Await(const Copy& copy) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct FreeDeleter {
    void operator()(char* data) const;
  };

  BackgroundFile(const Options& options, int file, Clock& clock);

  absl::Status SystemError(int error, absl::string_view problem) const;
  std::shared_ptr<Copy> Ask(bool writes, int64_t offset, std::vector<Buffer> blocks)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Main() ABSL_LOCKS_EXCLUDED(mutex_);
  // Through the buffer.
  absl::Status Perform(const Copy& copy);
  absl::Status WriteBuffer(int64_t size, int64_t offset);
  absl::Status ReadBuffer(int64_t size, int64_t offset);

  const Options options_;
  const int file_;
  bool direct_ = false;
  Clock& clock_;
  const std::unique_ptr<char, FreeDeleter> buffer_;  // of the thread

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Copy>> asked_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
