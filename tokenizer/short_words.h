// ShortWords: the ids of short words of a text that were seen before, by the words as they are in the text. A lookup reads one
// or two lines of the processor's cache.
//
// Thread-compatible. It never grows: a word takes the place of one that has its place.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/types/span.h"

namespace penstock {

// A word of at most kBytesMax bytes: the bytes, and zeros.
struct ShortWord {
  static constexpr size_t kBytesMax = 16;
  uint64_t low = 0;
  uint64_t high = 0;
  size_t bytes = 0;

  // The word that ends before the first space in the kBytesMax + 1 bytes at `text`. If it is longer, it has kBytesMax + 1 bytes.
  static ShortWord Read(const char* text) {
    static_assert(std::endian::native == std::endian::little);
    ShortWord word;
    std::memcpy(&word.low, text, 8);
    word.bytes = ZeroByte(word.low ^ kSpaces);
    if (word.bytes < 8) {
      word.low &= (uint64_t{1} << 8 * word.bytes) - 1;
      return word;
    }
    std::memcpy(&word.high, text + 8, 8);
    const size_t bytes = ZeroByte(word.high ^ kSpaces);
    if (bytes < 8) word.high &= (uint64_t{1} << 8 * bytes) - 1;
    word.bytes = 8 + bytes + (bytes == 8 && text[kBytesMax] != ' ' ? 1 : 0);
    return word;
  }

 private:
  static constexpr uint64_t kSpaces = 0x2020202020202020;
  // The place of the first byte that is zero; 8: there is none.
  static size_t ZeroByte(uint64_t bytes) {
    constexpr uint64_t kOnes = 0x0101010101010101, kTops = 0x8080808080808080;
    return static_cast<size_t>(std::countr_zero((bytes - kOnes) & ~bytes & kTops)) / 8;
  }
};

class ShortWords {
 public:
  static constexpr size_t kIdsMax = 8;
  // The ids of a word: `ids` can be read up to kRead, but only `count` are of the word.
  struct Found {
    const int32_t* ids = nullptr;  // null: it is not there
    uint32_t count = 0;
    float limit = 0;  // as the caller means it
  };
  static constexpr size_t kRead = 4;  // a word with more than that is rare

  // REQUIRES: the word has 1 to kBytesMax bytes.
  Found Find(const ShortWord& word) const {
    return word.bytes <= 8 ? shorter_.Find(word) : longer_.Find(word);
  }
  // Does nothing if there are more ids than such a word has room for.
  void Put(const ShortWord& word, absl::Span<const int32_t> ids, float limit) {
    word.bytes <= 8 ? shorter_.Put(word, ids, limit) : longer_.Put(word, ids, limit);
  }

 private:
  static uint64_t HashOf(const ShortWord& word) {
    constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
    const absl::uint128 product = absl::uint128(word.low ^ std::rotl(word.high, 29)) * kMultiplier;
    return absl::Uint128Low64(product) ^ absl::Uint128High64(product);
  }

  struct alignas(32) ShorterEntry {
    static constexpr size_t kIds = 4;
    uint64_t low = 0;
    float limit = 0;
    uint16_t bytes = 0;  // of the word; 0: there is none
    uint16_t count = 0;
    int32_t ids[kIds] = {};

    bool Is(const ShortWord& word) const { return (low == word.low) & (bytes == word.bytes); }
    void Name(const ShortWord& word) { low = word.low; }
  };
  struct alignas(64) LongerEntry {
    static constexpr size_t kIds = kIdsMax;
    uint64_t low = 0, high = 0;
    float limit = 0;
    uint16_t bytes = 0;
    uint16_t count = 0;
    int32_t ids[kIds] = {};

    bool Is(const ShortWord& word) const {
      return (low == word.low) & (high == word.high) & (bytes == word.bytes);
    }
    void Name(const ShortWord& word) {
      low = word.low;
      high = word.high;
    }
  };

  // A place for two words at each of kSets hashes.
  template <typename Entry, size_t kSets>
  class Table {
   public:
    Table() : sets_(kSets) {}

    Found Find(const ShortWord& word) const {
      const std::array<Entry, 2>& set = sets_.data()[HashOf(word) % kSets];
      // Both are compared, as which of them it is cannot be foreseen.
      const Entry& entry = set.data()[set.data()[1].Is(word) ? 1 : 0];
      if (!entry.Is(word)) return {};
      return {entry.ids, entry.count, entry.limit};
    }
    void Put(const ShortWord& word, absl::Span<const int32_t> ids, float limit) {
      if (ids.size() > Entry::kIds) return;
      std::array<Entry, 2>& set = sets_[HashOf(word) % kSets];
      set[1] = set[0];
      set[0].Name(word);
      set[0].limit = limit;
      set[0].bytes = static_cast<uint16_t>(word.bytes);
      set[0].count = static_cast<uint16_t>(ids.size());
      std::copy(ids.begin(), ids.end(), set[0].ids);
    }

   private:
    std::vector<std::array<Entry, 2>> sets_;
  };

  Table<ShorterEntry, 1 << 15> shorter_;
  Table<LongerEntry, 1 << 13> longer_;
};

}  // namespace penstock
