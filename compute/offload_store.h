// OffloadStore: where the stashes of a worker's stages wait while they are not on its device (schedule/offload.h).
//
// A stash is a list of blocks. It goes out and comes back beside the computation; between FinishOut and StartIn it is in the
// store alone. Where a device has memory of its own, the store is the host's pinned memory (HostOffload); where it
// computes in the host's memory, it is a file (worker/spill_file.h).
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/backend.h"

namespace penstock {

// When a copy was under way, on the clock of the run; both 0 where nobody can tell.
struct CopySpan {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// Where a store is a file, what goes there begins at multiples of kFileAlignment and takes as many: RoomInFile of its bytes.
inline constexpr int64_t kFileAlignment = 4096;
constexpr int64_t RoomInFile(int64_t bytes) {
  return (bytes + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
}

class OffloadStore {
 public:
  virtual ~OffloadStore() = default;

  // Begins to copy `blocks` out, as the calls to the back-end so far leave them. Returns the stash's number, by which the
  // others know it. REQUIRES: there are blocks, none of them empty, whose content stays until FinishOut.
  // Errors: ResourceExhausted (no room), of the device.
  virtual absl::StatusOr<int64_t> StartOut(absl::Span<const Buffer> blocks) = 0;
  // Waits until the copy is done; the caller may then drop the blocks. Errors: of the device, or of the file with its name.
  virtual absl::StatusOr<CopySpan> FinishOut(int64_t stash) = 0;
  // Takes memory on the device and begins to copy the stash back. REQUIRES: FinishOut. Errors: as StartOut.
  virtual absl::Status StartIn(int64_t stash) = 0;
  // From here on calls to the back-end see the blocks, in the order in which they went, whole. The number is free again.
  // REQUIRES: StartIn. Errors: as FinishOut.
  virtual absl::StatusOr<CopySpan> FinishIn(int64_t stash, std::vector<Buffer>& blocks) = 0;
};

// Numbers for stashes that are out, the lowest free one first.
template <typename Stash>
class StashTable {
 public:
  int64_t Add(Stash stash) {
    for (size_t number = 0; number < stashes_.size(); ++number) {
      if (used_[number]) continue;
      used_[number] = true;
      stashes_[number] = std::move(stash);
      return static_cast<int64_t>(number);
    }
    stashes_.push_back(std::move(stash));
    used_.push_back(true);
    return static_cast<int64_t>(stashes_.size()) - 1;
  }
  Stash& operator[](int64_t number) { return stashes_[number]; }
  void Remove(int64_t number) {
    stashes_[number] = Stash();
    used_[number] = false;
  }

 private:
  std::vector<Stash> stashes_;
  std::vector<bool> used_;
};

// Pinned memory of the host, by the back-end's copies in both directions.
class HostOffload : public OffloadStore {
 public:
  // REQUIRES: the back-end's device has memory of its own; it outlives the store.
  explicit HostOffload(Backend& backend) : backend_(backend) {}

  absl::StatusOr<int64_t> StartOut(absl::Span<const Buffer> blocks) override;
  absl::StatusOr<CopySpan> FinishOut(int64_t stash) override;
  absl::Status StartIn(int64_t stash) override;
  absl::StatusOr<CopySpan> FinishIn(int64_t stash, std::vector<Buffer>& blocks) override;

 private:
  struct Stash {
    std::vector<Outgoing> outgoing;
    std::vector<Tensor> host;
    std::vector<Incoming> incoming;
  };

  Backend& backend_;
  StashTable<Stash> stashes_;
};

}  // namespace penstock
