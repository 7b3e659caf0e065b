// TextPairs: sentences with their translations, from files as they come.
//
//   .mo        a compiled gettext catalogue: messages with their translations (data/gettext_catalogue.h)
//   .tsv       a pair in each line: source, tab, target; what follows a second tab is left alone
//   two texts  line i of one is the source, line i of the other the target
//
// and what is left of them by simple rules, in this order:
//
//   1. white space: each run of it is one space, and none is at the ends
//   2. marks of keyboard access ("_Open", "&Open"): where both sides have exactly one, before a letter or digit, both go
//   3. left out: pairs with an empty side; with both sides equal, which nobody translated; with markup (a tag, or an
//      entity such as &amp;); without a letter on a side; with a side of more than `bytes_max` bytes; where one side is
//      more than three times as long as the other, and by more than 20 bytes; and whose source was there before
//
// Plain functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files.h"

namespace penstock {

inline constexpr int64_t kPairFileBytesMax = int64_t{2} << 30;

struct TextPair {
  std::string source;
  std::string target;

  friend bool operator==(const TextPair&, const TextPair&) = default;
};

// Of one file, which its ending tells apart. Errors: InvalidArgument (another ending), DataLoss (a catalogue that is
// damaged, a line without a tab, text that is not UTF-8), those of `files`; all begin with the path.
absl::StatusOr<std::vector<TextPair>> ReadPairFile(Files& files, const std::string& path);

// Of two texts. Errors: DataLoss (one has more lines, or is not UTF-8), those of `files`.
absl::StatusOr<std::vector<TextPair>> ReadParallelTexts(Files& files, const std::string& source,
                                                        const std::string& target);

// Why a pair is left out.
enum class PairFault : uint8_t {
  kEmpty,
  kSame,
  kMarkup,
  kNoLetters,
  kLong,
  kUneven,
  kRepeated,
};
inline constexpr std::array<absl::string_view, 7> kPairFaultNames = {
    "empty", "same", "markup", "no letters", "long", "uneven", "repeated source"};

struct CleanPairs {
  std::vector<TextPair> pairs;
  int64_t read = 0;
  std::array<int64_t, kPairFaultNames.size()> left_out = {};  // by fault
};

// Applies the rules. The first pair of a source counts.
CleanPairs Clean(std::vector<TextPair> pairs, int64_t bytes_max);

}  // namespace penstock
