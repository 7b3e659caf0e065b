// SpillFile: a bounded file without a name, in which offloaded stashes wait where device and host share their memory
// (compute/offload_store.h).
//
// A thread of its own writes and reads, one stash after the other in the order in which they were asked for, so that the
// one that computes only hands over and, if it comes too early, waits. Where the filesystem allows it the data go past the
// system's page cache (O_DIRECT), which would take the very memory that offloading is to save; they then pass through one
// aligned buffer of kBufferBytes. The file has room for all stashes from the start, where the filesystem can promise that,
// and is gone with the process.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "compute/offload_store.h"

namespace penstock {

class SpillFile : public OffloadStore {
 public:
  static constexpr int64_t kBufferBytes = 1 << 20;
  // Stashes begin at multiples of this, and take as many.
  static constexpr int64_t kAlignment = 4096;
  // What a stash of `bytes` takes.
  static int64_t RoomOf(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  struct Options {
    std::string directory;
    int64_t bytes_max = 0;  // RoomOf all stashes that are out at once
    bool direct = true;     // past the page cache, where the filesystem allows it
  };
  // REQUIRES: `pool` is where stashes come from and go to; it and `clock` outlive the file.
  // Errors: those of the system with the directory and what to do; ResourceExhausted (the disk is full).
  static absl::StatusOr<std::unique_ptr<SpillFile>> Create(const Options& options, BufferPool& pool,
                                                           Clock& clock);
  // Waits for the copies that are under way.
  ~SpillFile() override;

  // Whether data go past the page cache.
  bool direct() const { return direct_; }

  absl::StatusOr<int64_t> StartOut(absl::Span<const Buffer> blocks) override;
  absl::StatusOr<CopySpan> FinishOut(int64_t stash) override;
  absl::Status StartIn(int64_t stash) override;
  absl::StatusOr<CopySpan> FinishIn(int64_t stash, std::vector<Buffer>& blocks) override;

 private:
  // A copy in one direction.
  struct Copy {
    bool writes = false;
    int64_t offset = 0;
    std::vector<Buffer> blocks;
    bool done = false;
    absl::Status status;
    CopySpan span;
  };
  struct Stash {
    int64_t offset = 0;
    int64_t room = 0;
    std::vector<int64_t> sizes;  // of its blocks
    std::shared_ptr<Copy> copy;  // the last one
  };
  struct FreeDeleter {
    void operator()(char* data) const;
  };

  SpillFile(const Options& options, int file, BufferPool& pool, Clock& clock);

  absl::StatusOr<int64_t> TakeRoom(int64_t room);
  std::shared_ptr<Copy> Ask(bool writes, int64_t offset, std::vector<Buffer> blocks)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Await(const Copy& copy) ABSL_LOCKS_EXCLUDED(mutex_);
  void Main() ABSL_LOCKS_EXCLUDED(mutex_);
  // Through the buffer.
  absl::Status Perform(const Copy& copy);
  absl::Status WriteBuffer(int64_t size, int64_t offset);
  absl::Status ReadBuffer(int64_t size, int64_t offset);

  const std::string directory_;
  const int64_t bytes_max_;
  const int file_;
  bool direct_ = false;
  BufferPool& pool_;
  Clock& clock_;
  const std::unique_ptr<char, FreeDeleter> buffer_;  // of the thread

  StashTable<Stash> stashes_;
  int64_t end_ = 0;                               // of the file's part that has been used
  std::map<int64_t, std::vector<int64_t>> free_;  // by room: offsets

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Copy>> asked_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
