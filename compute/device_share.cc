#include "compute/device_share.h"

#include "absl/strings/str_cat.h"

namespace penstock {

absl::StatusOr<ShareBytes> ShareBytes::Of(absl::string_view bytes) {
  if (bytes.size() > kMax) {
    return absl::InvalidArgumentError(absl::StrCat("an offer or descriptor of shared memory has ",
                                                   bytes.size(), " bytes; expected at most ",
                                                   kMax));
  }
  ShareBytes result;
  std::memcpy(result.data_.data(), bytes.data(), bytes.size());
  result.size_ = static_cast<int>(bytes.size());
  return result;
}

}  // namespace penstock
