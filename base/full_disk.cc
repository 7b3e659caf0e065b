#include "base/full_disk.h"

#include "absl/strings/str_cat.h"

namespace penstock {

absl::Status FinalIfDiskIsFull(const absl::Status& status, absl::string_view advice) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::FailedPreconditionError(absl::StrCat(status.message(), "; ", advice));
}

}  // namespace penstock
