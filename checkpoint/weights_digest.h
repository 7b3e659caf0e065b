// weights_sha256: one name for all weights of a model, the same for every partition.
//
// The digest of a layer is SHA-256 over its parameters in their order, f32 little endian
// (Stage::LayerDigests); that of the model is SHA-256 over the layers' digests as lower-case
// hexadecimal, concatenated.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace penstock {

// `layers`: the digest of every layer of the model, in order.
std::string CombineLayerDigests(absl::Span<const std::string> layers);

}  // namespace penstock
