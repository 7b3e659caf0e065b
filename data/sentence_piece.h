// SentencePiece: cuts text into subword pieces and learns which pieces to use. Kudo and Richardson, EMNLP 2018,
// arXiv 1808.06226.
//
// What is called are the programs of Debian's package `sentencepiece`, in processes of their own. Its library can not be
// linked: it brings a protobuf 3.14 that exports the same names as the one that gRPC needs, so that a program with both
// ends at the first message, whichever comes first. To turn pieces back into text (PieceList) needs neither.
//
// Plain functions. They block; `stop` is looked at several times a second, and once it is true the program is ended.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace penstock {

enum class PieceAlgorithm : uint8_t { kUnigram, kBpe };

struct PieceTraining {
  int64_t pieces = 8000;  // at the most; a small text has fewer
  PieceAlgorithm algorithm = PieceAlgorithm::kUnigram;
};

// What a vocabulary consists of.
struct PieceFiles {
  std::string model;  // what spm_encode reads
  std::string list;   // a line for each piece: piece, tab, score
};

using StopRequested = std::function<bool()>;

// Learns pieces of `lines`: 0 is padding, 1 unknown, 2 the beginning of a sentence, 3 its end. The same lines give the
// same pieces. Errors: NotFound (the programs are not installed), InvalidArgument (what they say of the text),
// Cancelled, ResourceExhausted (the temporary directory is full).
absl::StatusOr<PieceFiles> TrainPieces(absl::Span<const std::string> lines,
                                       const PieceTraining& training, const StopRequested& stop);

// The list of a model that exists already. Errors: as TrainPieces.
absl::StatusOr<PieceFiles> LoadPieces(std::string model, const StopRequested& stop);

// The pieces of each line. Errors: as TrainPieces.
absl::StatusOr<std::vector<std::vector<int32_t>>> EncodePieces(const PieceFiles& vocabulary,
                                                               absl::Span<const std::string> lines,
                                                               const StopRequested& stop);

}  // namespace penstock
