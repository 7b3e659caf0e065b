#include "worker/copy_rate.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr int kRounds = 4;  // the first one may find a file that has no blocks yet

}  // namespace

absl::StatusOr<double> MeasureCopyRate(Backend& backend, OffloadStore& store) {
  Buffer block = backend.pool().Acquire(kCopyRateBytes);
  if (!block) {
    return absl::ResourceExhaustedError(absl::StrCat(
        backend.name(), " has no memory for a stash of ", kCopyRateBytes, " bytes to be timed"));
  }
  std::vector<Buffer> blocks;
  blocks.push_back(std::move(block));
  int64_t out_ns = 0;
  int64_t in_ns = 0;
  for (int i = 0; i < kRounds; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t stash, store.StartOut(blocks));
    PENSTOCK_ASSIGN_OR_RETURN(const CopySpan out, store.FinishOut(stash));
    blocks.clear();
    PENSTOCK_RETURN_IF_ERROR(store.StartIn(stash));
    PENSTOCK_ASSIGN_OR_RETURN(const CopySpan in, store.FinishIn(stash, blocks));
    if (i == 0) continue;
    out_ns += out.end_ns - out.start_ns;
    in_ns += in.end_ns - in.start_ns;
  }
  const int64_t slower_ns = std::max(out_ns, in_ns);
  if (slower_ns <= 0) {
    return absl::FailedPreconditionError("the copies of stashes have no times on this device");
  }
  return double{kRounds - 1} * kCopyRateBytes * 1e9 / static_cast<double>(slower_ns);
}

}  // namespace penstock
