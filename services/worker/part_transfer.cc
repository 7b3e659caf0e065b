#include "services/worker/part_transfer.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "base/status.h"
#include "services/rpc/data_patience.h"

namespace penstock {
namespace {

constexpr int64_t kPartBytesMin = 16 << 10;
constexpr int64_t kPartBytesMax = rpc_limits::kDataPartBytesMax;
// Parts in a row that were quick, after which the next one may have twice the bytes.
constexpr int kQuickPartsToGrow = 4;

// Whether a part took so little of its time that one with twice the bytes would come in time, too.
bool IsQuick(absl::Duration took) { return took < kPartCallTimeout / 4; }

// How many bytes a part may have: fewer after one that was not answered in time, and more again once parts are quick. A
// coordinator that was frozen for a while looks like a slow link, and must not get small parts up to the end of the file.
class PartSize {
 public:
  int64_t bytes_max() const { return bytes_max_; }

  void OnPart(absl::Duration took) {
    quick_parts_ = IsQuick(took) ? quick_parts_ + 1 : 0;
    if (quick_parts_ < kQuickPartsToGrow) return;
    quick_parts_ = 0;
    bytes_max_ = std::min(bytes_max_ * 2, kPartBytesMax);
  }
  void OnLatePart() {
    quick_parts_ = 0;
    bytes_max_ = std::max(bytes_max_ / 2, kPartBytesMin);
  }

 private:
  int64_t bytes_max_ = kPartBytesMax;
  int quick_parts_ = 0;  // in a row
};

}  // namespace

absl::Status TransferParts(absl::FunctionRef<absl::Status()> may_go_on,
                           absl::FunctionRef<absl::StatusOr<bool>(int64_t part_bytes_max)> transfer,
                           absl::Duration patience_time) {
  DataPatience patience(patience_time);
  PartSize size;
  for (;;) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    const absl::Time begun = absl::Now();
    const absl::StatusOr<bool> over = transfer(size.bytes_max());
    if (over.ok()) {
      if (*over) return absl::OkStatus();
      size.OnPart(absl::Now() - begun);
      patience.OnProgress();
      continue;
    }
    if (absl::IsDeadlineExceeded(over.status())) size.OnLatePart();
    if (!patience.MayAskAgain(over.status())) return over.status();
  }
}

}  // namespace penstock
