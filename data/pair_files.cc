#include "data/pair_files.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

constexpr char kPairsFormat[] = "penstock-pairs";
constexpr int64_t kPairFactsBytesMax = int64_t{1} << 20;
constexpr int64_t kPiecesMax = int64_t{1} << 24;
constexpr int64_t kTextBytesMax = int64_t{4} << 30;

struct Bounds {
  int64_t min = 0;
  int64_t max = 0;
};

// REQUIRES: 0 <= bounds.min <= bounds.max.
absl::StatusOr<int64_t> NumberIn(const nlohmann::json& object, const char* key,
                                 const Bounds& bounds) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_number_unsigned() &&
      found->get<uint64_t>() >= static_cast<uint64_t>(bounds.min) &&
      found->get<uint64_t>() <= static_cast<uint64_t>(bounds.max)) {
    return static_cast<int64_t>(found->get<uint64_t>());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("vocabulary.", key, ": is ", found == object.end() ? "absent" : found->dump(),
                   "; expected a whole number from ", bounds.min, " to ", bounds.max));
}

}  // namespace

absl::StatusOr<PairFacts> ParsePairFacts(absl::string_view text) {
  PENSTOCK_ASSIGN_OR_RETURN(const nlohmann::json json,
                            ParseStrictJson(text, {.depth_max = 6, .values_max = 1 << 12}));
  if (!json.is_object() || !json.contains("format") || json["format"] != kPairsFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("format: expected an object with \"format\": \"", kPairsFormat, "\""));
  }
  if (!json.contains("vocabulary") || !json["vocabulary"].is_object()) {
    return absl::InvalidArgumentError(
        "vocabulary: expected {\"pieces\": ..., \"padding\": ..., \"unknown\": ..., \"bos\": ..., "
        "\"eos\": ...}");
  }
  const nlohmann::json& vocabulary = json["vocabulary"];
  PairFacts facts;
  PENSTOCK_ASSIGN_OR_RETURN(facts.vocabulary.pieces,
                            NumberIn(vocabulary, "pieces", {.min = 1, .max = kPiecesMax}));
  const std::pair<const char*, int32_t*> numbers[] = {{"padding", &facts.vocabulary.padding},
                                                      {"unknown", &facts.vocabulary.unknown},
                                                      {"bos", &facts.vocabulary.bos},
                                                      {"eos", &facts.vocabulary.eos}};
  for (const auto& [key, number] : numbers) {
    PENSTOCK_ASSIGN_OR_RETURN(
        const int64_t value,
        NumberIn(vocabulary, key, {.min = 0, .max = facts.vocabulary.pieces - 1}));
    *number = static_cast<int32_t>(value);
  }
  if (!json.contains("counts") || !json["counts"].is_array()) return facts;
  for (const nlohmann::json& count : json["counts"]) {
    if (!count.is_object() || !count.contains("what") || !count["what"].is_string() ||
        !count.contains("pairs") || !count["pairs"].is_number_integer()) {
      return absl::InvalidArgumentError("counts: expected {\"what\": ..., \"pairs\": ...}");
    }
    facts.counts.push_back({count["what"].get<std::string>(), count["pairs"].get<int64_t>()});
  }
  return facts;
}

std::string PrintPairFacts(const PairFacts& facts) {
  const PieceNumbers& vocabulary = facts.vocabulary;
  nlohmann::ordered_json json = {{"format", kPairsFormat},
                                 {"vocabulary",
                                  {{"pieces", vocabulary.pieces},
                                   {"padding", vocabulary.padding},
                                   {"unknown", vocabulary.unknown},
                                   {"bos", vocabulary.bos},
                                   {"eos", vocabulary.eos}}}};
  for (const PairCount& count : facts.counts) {
    json["counts"].push_back({{"what", count.what}, {"pairs", count.pairs}});
  }
  return json.dump(1) + "\n";
}

absl::StatusOr<std::unique_ptr<PairFiles>> PairFiles::Open(Files& files,
                                                           const std::string& directory,
                                                           const RecordFilesOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<RecordFiles> records,
                            RecordFiles::Open(files, directory, options));
  return Open(files, std::move(records));
}

absl::StatusOr<std::unique_ptr<PairFiles>> PairFiles::Open(Files& files,
                                                           std::unique_ptr<RecordFiles> records) {
  const std::string& directory = records->directory();
  auto pairs = std::unique_ptr<PairFiles>(new PairFiles(std::move(records)));
  for (const PairSide side : {PairSide::kSource, PairSide::kTarget}) {
    const char* const name = kPairSequences[static_cast<size_t>(side)];
    const int sequence = pairs->records_->FindSequence(name);
    if (sequence < 0 || pairs->records_->index().sequences[sequence].dtype != "I32") {
      return absl::InvalidArgumentError(
          absl::StrCat(directory, " has no sequence ", name,
                       " of I32, as pairs have; `penstock data prepare pairs` makes some"));
    }
    pairs->sequences_[static_cast<size_t>(side)] = sequence;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                            pairs->records_->ReadListedFile(files, kPairsFile, kPairFactsBytesMax));
  absl::StatusOr<PairFacts> facts = ParsePairFacts(text);
  if (!facts.ok()) return Annotate(facts.status(), JoinPath(directory, kPairsFile));
  pairs->facts_ = *std::move(facts);
  return pairs;
}

absl::Status PairFiles::Read(PairSide side, int64_t pair, absl::Span<int32_t> pieces) const {
  return records_->ReadSequence(
      sequences_[static_cast<size_t>(side)], pair,
      absl::MakeSpan(reinterpret_cast<std::byte*>(pieces.data()), pieces.size() * sizeof(int32_t)));
}

absl::StatusOr<PieceList> PairFiles::ReadPieceList(Files& files) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                            records_->ReadListedFile(files, kPieceListFile, kPieceListBytesMax));
  const std::string path = JoinPath(directory(), kPieceListFile);
  absl::StatusOr<PieceList> list = PieceList::Parse(text);
  if (!list.ok()) return Annotate(list.status(), path);
  if (list->numbers() == vocabulary()) return list;
  return absl::DataLossError(absl::StrCat(path, " has ", list->numbers().pieces,
                                          " pieces, or other special ones than ", kPairsFile,
                                          " says of ", vocabulary().pieces));
}

absl::StatusOr<std::vector<std::string>> PairFiles::ReadTexts(Files& files, PairSide side) const {
  const char* const name = side == PairSide::kSource ? kSourceTextFile : kTargetTextFile;
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                            records_->ReadListedFile(files, name, kTextBytesMax));
  std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  if (static_cast<int64_t>(lines.size()) == pairs()) return lines;
  return absl::DataLossError(absl::StrCat(JoinPath(directory(), name), " has ", lines.size(),
                                          " lines, but there are ", pairs(), " pairs"));
}

std::vector<int64_t> PairsByLength(const PairFiles& pairs, const PairLimits& limits) {
  std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes;
  for (int64_t pair = 0; pair < pairs.pairs(); ++pair) {
    const int64_t source = pairs.PiecesOf(PairSide::kSource, pair);
    const int64_t target = pairs.PiecesOf(PairSide::kTarget, pair);
    if (source <= limits.source && target <= limits.target) {
      sizes.emplace_back(source, target, pair);
    }
  }
  std::sort(sizes.begin(), sizes.end());
  std::vector<int64_t> by_length;
  by_length.reserve(sizes.size());
  for (const auto& [source, target, pair] : sizes) by_length.push_back(pair);
  return by_length;
}

}  // namespace penstock
