#include "data/token_sequence.h"

#include <algorithm>

namespace penstock {

absl::Status ByteTokens::Copy(int64_t first, absl::Span<int32_t> ids) const {
  const char* const from = text_.data() + first;
  std::transform(from, from + ids.size(), ids.begin(),
                 [](char byte) { return static_cast<int32_t>(static_cast<unsigned char>(byte)); });
  return absl::OkStatus();
}

absl::Status StoredTokens::Copy(int64_t first, absl::Span<int32_t> ids) const {
  std::copy_n(ids_.begin() + first, ids.size(), ids.begin());
  return absl::OkStatus();
}

}  // namespace penstock
