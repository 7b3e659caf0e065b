#include "services/worker/part_transfer.h"

#include <algorithm>

#include "base/status.h"
#include "services/rpc/data_patience.h"

namespace penstock {
namespace {

constexpr int64_t kPartBytesMin = 16 << 10;

}  // namespace

absl::Status TransferParts(absl::FunctionRef<absl::Status()> may_go_on,
                           absl::FunctionRef<absl::StatusOr<bool>(int64_t part_bytes_max)> transfer,
                           absl::Duration patience_time) {
  DataPatience patience(patience_time);
  int64_t part_bytes_max = rpc_limits::kDataPartBytesMax;
  for (;;) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    const absl::StatusOr<bool> over = transfer(part_bytes_max);
    if (over.ok()) {
      if (*over) return absl::OkStatus();
      patience.OnProgress();
      continue;
    }
    if (absl::IsDeadlineExceeded(over.status())) {
      part_bytes_max = std::max(part_bytes_max / 2, kPartBytesMin);
    }
    if (!patience.MayAskAgain(over.status())) return over.status();
  }
}

}  // namespace penstock
