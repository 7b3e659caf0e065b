#include "checkpoint/weights_digest.h"

#include "absl/strings/string_view.h"
#include "base/sha256.h"

namespace penstock {

std::string CombineLayerDigests(absl::Span<const std::string> layers) {
  Sha256 digest;
  for (const std::string& layer : layers) digest.Update(absl::string_view(layer));
  return digest.HexDigest();
}

}  // namespace penstock
