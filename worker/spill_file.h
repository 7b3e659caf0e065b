// SpillFile: a bounded file (background_file.h) in which offloaded stashes wait where device and host share their memory
// (compute/offload_store.h).
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "compute/offload_store.h"
#include "worker/background_file.h"

namespace penstock {

class SpillFile : public OffloadStore {
 public:
  struct Options {
    std::string directory;
    int64_t bytes_max = 0;  // RoomInFile of all stashes that are out at once
    bool direct = true;     // past the page cache, where the filesystem allows it
  };
  // REQUIRES: `pool` is where stashes come from and go to; it and `clock` outlive the file.
  // Errors: those of the system with the directory and what to do; ResourceExhausted (the disk is full).
  static absl::StatusOr<std::unique_ptr<SpillFile>> Create(const Options& options, BufferPool& pool,
                                                           Clock& clock);

  // Whether data go past the page cache.
  bool direct() const { return file_->direct(); }

  absl::StatusOr<int64_t> StartOut(absl::Span<const Buffer> blocks) override;
  absl::StatusOr<CopySpan> FinishOut(int64_t stash) override;
  absl::Status StartIn(int64_t stash) override;
  absl::StatusOr<CopySpan> FinishIn(int64_t stash, std::vector<Buffer>& blocks) override;

 private:
  struct Stash {
    int64_t offset = 0;
    int64_t room = 0;
    std::vector<int64_t> sizes;                  // of its blocks
    std::shared_ptr<BackgroundFile::Copy> copy;  // the last one
  };

  SpillFile(std::unique_ptr<BackgroundFile> file, BufferPool& pool)
      : file_(std::move(file)), pool_(pool) {}

  absl::StatusOr<int64_t> TakeRoom(int64_t room);

  const std::unique_ptr<BackgroundFile> file_;
  BufferPool& pool_;
  StashTable<Stash> stashes_;
  int64_t end_ = 0;                               // of the file's part that has been used
  std::map<int64_t, std::vector<int64_t>> free_;  // by room: offsets
};

}  // namespace penstock
