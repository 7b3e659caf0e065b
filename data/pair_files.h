// PairFiles: a directory of pairs, each a source and a target sequence of pieces.
//
// It is a directory of records (record_index.h) with the sequences `source` and `target`, both I32, without pieces for the
// beginning or the end, and these files that the index lists:
//
//   pairs.json     {"format": "penstock-pairs",
//                   "vocabulary": {"pieces": 8000, "padding": 0, "unknown": 1, "bos": 2, "eos": 3}}
//                  and how the pairs were made, for people
//   pieces.model   the vocabulary for SentencePiece; may be absent
//   pieces.vocab   its pieces, one in a line (piece_list.h); may be absent
//   source.txt     the texts, line i of record i; may be absent
//   target.txt
//
// Thread safety: immutable once open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "data/piece_list.h"
#include "data/record_files.h"

namespace penstock {

inline constexpr char kPairsFile[] = "pairs.json";
inline constexpr char kPieceModelFile[] = "pieces.model";
inline constexpr char kPieceListFile[] = "pieces.vocab";
inline constexpr char kSourceTextFile[] = "source.txt";
inline constexpr char kTargetTextFile[] = "target.txt";

enum class PairSide : uint8_t { kSource, kTarget };
inline constexpr const char* kPairSequences[] = {"source", "target"};  // by side

// How pairs were made, for people.
inline constexpr char kPairsRead[] = "read";
struct PairCount {
  std::string what;  // kPairsRead, or why they were left out: "markup"
  int64_t pairs = 0;

  friend bool operator==(const PairCount&, const PairCount&) = default;
};

struct PairFacts {
  PieceNumbers vocabulary;
  std::vector<PairCount> counts;
};

// Errors: InvalidArgument naming the key.
absl::StatusOr<PairFacts> ParsePairFacts(absl::string_view text);
std::string PrintPairFacts(const PairFacts& facts);

class PairFiles {
 public:
  // Errors: those of RecordFiles::Open; InvalidArgument (records that are no pairs; a vocabulary without such numbers);
  // DataLoss (a listed file is not what the index says).
  static absl::StatusOr<std::unique_ptr<PairFiles>> Open(Files& files, const std::string& directory,
                                                         const RecordFilesOptions& options);
  // The same of a directory that is open already.
  static absl::StatusOr<std::unique_ptr<PairFiles>> Open(Files& files,
                                                         std::unique_ptr<RecordFiles> records);

  const RecordFiles& records() const { return *records_; }
  const std::string& directory() const { return records_->directory(); }
  const PairFacts& facts() const { return facts_; }
  const PieceNumbers& vocabulary() const { return facts_.vocabulary; }
  int64_t pairs() const { return records_->records(); }

  // REQUIRES: there is such a pair.
  int64_t PiecesOf(PairSide side, int64_t pair) const {
    return records_->LengthOf(sequences_[static_cast<size_t>(side)], pair);
  }
  // REQUIRES: `pieces` has room for just those. Errors: those of the disk.
  absl::Status Read(PairSide side, int64_t pair, absl::Span<int32_t> pieces) const;

  // What the index lists. Errors: NotFound (it does not), DataLoss (another content, or another number of lines or pieces
  // than the directory has).
  absl::StatusOr<PieceList> ReadPieceList(Files& files) const;
  absl::StatusOr<std::vector<std::string>> ReadTexts(Files& files, PairSide side) const;

 private:
  explicit PairFiles(std::unique_ptr<RecordFiles> records) : records_(std::move(records)) {}

  const std::unique_ptr<RecordFiles> records_;
  PairFacts facts_;
  int sequences_[2] = {-1, -1};  // by side
};

// Of a pair, in pieces without beginning and end.
struct PairLimits {
  int64_t source = 0;
  int64_t target = 0;
};
// The pairs of at most these sizes, by source length, then by target length, then by number.
std::vector<int64_t> PairsByLength(const PairFiles& pairs, const PairLimits& limits);

}  // namespace penstock
