// PairSets: files of sentences and their translations as directories of pairs (pair_files.h).
//
// Pairs are read and cleaned (text_pairs.h) and divided into `train`, `validation` and `test`. Which part a pair is of
// follows from its source alone, by a digest, so that no source is in two parts, and a pair stays where it is when others
// come or go. Pieces are learnt on the training part, of both languages together, or given; every directory has them.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "data/pair_files.h"
#include "data/record_index.h"
#include "data/sentence_piece.h"
#include "data/text_pairs.h"

namespace penstock {

struct PairSetOptions {
  std::vector<std::string> files;  // .mo or .tsv, in order: the first pair of a source counts
  std::string source_text;         // two texts, read after `files`; both or none
  std::string target_text;
  std::string to;  // a folder for the directories of the parts
  double validation_fraction = 0.02;
  double test_fraction = 0.02;
  int64_t bytes_max = 400;  // of a side
  std::string piece_model;  // a file; empty: pieces are learnt
  PieceTraining training;
  int64_t shard_bytes_max = int64_t{256} << 20;
  // Called before each file and each of the steps behind them; its error ends the work. May be empty.
  std::function<absl::Status(int64_t done, int64_t all, const std::string& what)> progress;
  StopRequested stop;  // may be empty
};

enum class PairPart : uint8_t { kTest, kValidation, kTrain };
inline constexpr const char* kPairParts[] = {"test", "validation", "train"};  // by part

// The part that pairs with this source are of.
PairPart PartOf(absl::string_view source, double validation_fraction, double test_fraction);

struct PreparedPairSet {
  std::string directory;
  RecordIndex index;
};
struct PreparedPairs {
  PairFacts facts;
  std::vector<PreparedPairSet> parts;
};

// Errors: AlreadyExists (a part's directory has an index), InvalidArgument (nothing to read; a part without a pair), those
// of ReadPairFile, ReadParallelTexts, TrainPieces and `files`, that of `progress`.
absl::StatusOr<PreparedPairs> PreparePairs(Files& files, const PairSetOptions& options);

}  // namespace penstock
