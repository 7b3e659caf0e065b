// The largest tokenizers that are read. They bound memory, and are no statement about what is sensible.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

inline constexpr int64_t kTokenizerFileBytesMax = int64_t{128} << 20;
inline constexpr int64_t kTokenizerJsonValuesMax = 8'000'000;
inline constexpr int32_t kVocabularyMax = 1 << 24;  // that of model.gpt.vocabulary
inline constexpr size_t kPiecePairsMax = 1
                                         << 23;  // ways to cut the pieces of a BPE `.model` in two
inline constexpr size_t kTokenBytesMax = 1 << 16;
inline constexpr size_t kAddedTokenBytesMax = 1024;
inline constexpr size_t kAddedTokensMax = 1 << 16;
inline constexpr size_t kPatternBytesMax = 4096;
inline constexpr uint32_t kMatchStepsMax = 100'000'000;  // of one match of a pattern

}  // namespace penstock
