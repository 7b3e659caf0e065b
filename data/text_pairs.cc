#include "data/text_pairs.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <unordered_set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "data/gettext_catalogue.h"

namespace penstock {
namespace {

constexpr int64_t kUnevenRatio = 3;
constexpr int64_t kUnevenBytes = 20;
constexpr int64_t kEntityCharactersMax = 8;

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Well-formed as to the number of bytes of each character.
bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    size_t more = 0;
    if (first >= 0x80) {
      if (first >= 0xC2 && first < 0xE0) {
        more = 1;
      } else if (first >= 0xE0 && first < 0xF0) {
        more = 2;
      } else if (first >= 0xF0 && first < 0xF5) {
        more = 3;
      } else {
        return false;
      }
    }
    if (more > text.size() - i - 1) return false;
    for (size_t k = 1; k <= more; ++k) {
      if (!IsContinuation(text[i + k])) return false;
    }
    i += more + 1;
  }
  return true;
}

absl::StatusOr<std::vector<std::string>> ReadLines(Files& files, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files.Read(path, kPairFileBytesMax));
  if (!IsUtf8(text)) {
    return absl::DataLossError(
        absl::StrCat(path, " is not UTF-8; iconv --to-code=UTF-8 converts it"));
  }
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<TextPair> PairsOf(std::vector<GettextMessage> messages) {
  std::vector<TextPair> pairs;
  pairs.reserve(messages.size());
  for (GettextMessage& message : messages) {
    pairs.push_back({std::move(message.original), std::move(message.translation)});
  }
  return pairs;
}

absl::StatusOr<std::vector<TextPair>> ReadTable(Files& files, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> lines, ReadLines(files, path));
  std::vector<TextPair> pairs;
  for (const std::string& line : lines) {
    const std::vector<std::string> columns = absl::StrSplit(line, '\t');
    if (columns.size() < 2) {
      return absl::DataLossError(
          absl::StrCat(path, ":", pairs.size() + 1, ": has no tab; expected source, tab, target"));
    }
    pairs.push_back({columns[0], columns[1]});
  }
  return pairs;
}

std::string WithSingleSpaces(absl::string_view text) {
  std::string clean(text);
  absl::RemoveExtraAsciiWhitespace(&clean);
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return absl::ascii_isspace(c); }, ' ');
  return clean;
}

// Letters beyond ASCII begin with a byte of the upper half.
bool IsLetterByte(char c) {
  return absl::ascii_isalpha(c) || static_cast<unsigned char>(c) >= 0x80;
}

// Where the only mark of keyboard access is, if there is just one.
std::optional<size_t> AccessMark(absl::string_view text, char mark) {
  const size_t first = text.find(mark);
  if (first == absl::string_view::npos || first + 1 == text.size()) return std::nullopt;
  if (text.find(mark, first + 1) != absl::string_view::npos) return std::nullopt;
  const char next = text[first + 1];
  if (!IsLetterByte(next) && !absl::ascii_isdigit(next)) return std::nullopt;
  return first;
}

void DropAccessMarks(TextPair& pair) {
  for (const char mark : {'_', '&'}) {
    const std::optional<size_t> in_source = AccessMark(pair.source, mark);
    const std::optional<size_t> in_target = AccessMark(pair.target, mark);
    if (!in_source || !in_target) continue;
    pair.source.erase(*in_source, 1);
    pair.target.erase(*in_target, 1);
  }
}

// "<b", "</b", "<!--": a tag; "&amp;", "&#39;": an entity.
bool HasMarkup(absl::string_view text) {
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const char next = text[i + 1];
    if (text[i] == '<' && (absl::ascii_isalpha(next) || next == '/' || next == '!') &&
        text.find('>', i) != absl::string_view::npos) {
      return true;
    }
    if (text[i] != '&') continue;
    size_t end = i + 1;
    while (end < text.size() && (absl::ascii_isalnum(text[end]) || text[end] == '#')) ++end;
    const auto characters = static_cast<int64_t>(end - i) - 1;
    if (end < text.size() && text[end] == ';' && characters > 0 &&
        characters <= kEntityCharactersMax) {
      return true;
    }
  }
  return false;
}

bool HasLetter(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), IsLetterByte);
}

std::optional<PairFault> FaultOf(const TextPair& pair, int64_t bytes_max) {
  if (pair.source.empty() || pair.target.empty()) return PairFault::kEmpty;
  if (pair.source == pair.target) return PairFault::kSame;
  if (HasMarkup(pair.source) || HasMarkup(pair.target)) return PairFault::kMarkup;
  if (!HasLetter(pair.source) || !HasLetter(pair.target)) return PairFault::kNoLetters;
  const auto [shorter, longer] = std::minmax(
      {static_cast<int64_t>(pair.source.size()), static_cast<int64_t>(pair.target.size())});
  if (longer > bytes_max) return PairFault::kLong;
  if (longer > kUnevenRatio * shorter && longer - shorter > kUnevenBytes) return PairFault::kUneven;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::vector<TextPair>> ReadPairFile(Files& files, const std::string& path) {
  if (absl::EndsWith(path, ".tsv")) return ReadTable(files, path);
  if (!absl::EndsWith(path, ".mo") && !absl::EndsWith(path, ".gmo")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     " is none of the files that hold pairs: .mo (msgfmt makes one of a .po "
                     "file), .tsv; two texts are named with --source and --target"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string file, files.Read(path, kCatalogueBytesMax));
  absl::StatusOr<std::vector<GettextMessage>> messages = ReadGettextCatalogue(file);
  if (!messages.ok()) return Annotate(messages.status(), path);
  return PairsOf(*std::move(messages));
}

absl::StatusOr<std::vector<TextPair>> ReadParallelTexts(Files& files, const std::string& source,
                                                        const std::string& target) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<std::string> sources, ReadLines(files, source));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<std::string> targets, ReadLines(files, target));
  if (sources.size() != targets.size()) {
    return absl::DataLossError(absl::StrCat(source, " has ", sources.size(), " lines, but ", target,
                                            " has ", targets.size(),
                                            "; line i of one is translated by line i of the "
                                            "other"));
  }
  std::vector<TextPair> pairs;
  pairs.reserve(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    pairs.push_back({std::move(sources[i]), std::move(targets[i])});
  }
  return pairs;
}

CleanPairs Clean(std::vector<TextPair> pairs, int64_t bytes_max) {
  CleanPairs clean = {.read = static_cast<int64_t>(pairs.size())};
  std::unordered_set<std::string> sources;
  for (TextPair& pair : pairs) {
    pair = {WithSingleSpaces(pair.source), WithSingleSpaces(pair.target)};
    DropAccessMarks(pair);
    std::optional<PairFault> fault = FaultOf(pair, bytes_max);
    if (!fault && !sources.insert(pair.source).second) fault = PairFault::kRepeated;
    if (fault) {
      ++clean.left_out[static_cast<size_t>(*fault)];
    } else {
      clean.pairs.push_back(std::move(pair));
    }
  }
  return clean;
}

}  // namespace penstock
