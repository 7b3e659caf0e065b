// Learns the pairs of a byte-level BPE vocabulary from a text, and writes them as a tokenizer.json that Hugging Face's
// `tokenizers` loads, too.
//
// The pair of neighbours that stands most often within words is merged, again and again. Of pairs that stand equally often the
// one with the smaller ids is taken, first by its left token, then by its right one; so the result is a function of the text and
// the options. It is that of the package's BpeTrainer with the initial_alphabet of ByteLevel and the text as one sequence.
//
// Plain functions. Bytes that are part of no character are not learned from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/word_cutter.h"

namespace penstock {

struct BytePairTraining {
  int64_t vocabulary_size = 8000;  // at the most, special tokens and the 256 bytes among them
  int64_t occurrences_min = 1;     // of a pair that is merged
  std::string expression = kGpt2Expression;                     // which words the text is cut into
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // have the first ids
};

// Errors: InvalidArgument (an option, by name), those of Pattern::Compile and Find.
absl::StatusOr<std::string> TrainBytePairs(absl::string_view text, const BytePairTraining& options);

}  // namespace penstock
