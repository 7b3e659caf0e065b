// Rotary positions (Su et al., arXiv 2104.09864): by which angles the pairs of a head turn, the same on every back-end.
//
// Frequencies and angles are rounded to float where Hugging Face's transformers rounds them (modeling_rope_utils.py,
// modeling_llama.py). At position 8192 an angle is off by up to 5e-4 by this; models that were trained with such angles
// give other logits with exact ones.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/attributes.h"

namespace penstock::rope {

// By pair, how many radians it turns from one position to the next: [head_size / 2].
// REQUIRES: the attributes of an op `rope`, checked.
std::vector<float> Frequencies(const Attributes& attributes);

// turns [2 pairs] = the cosines of the pairs' angles at a position, then the sines.
void WriteTurns(absl::Span<const float> frequencies, int64_t position, float* turns);

}  // namespace penstock::rope
