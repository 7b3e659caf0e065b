#include "data/pair_sets.h"

#include <array>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "data/record_writer.h"

namespace penstock {
namespace {

constexpr int64_t kPieceModelBytesMax = int64_t{1} << 30;
constexpr int64_t kStepsBehindFiles = 3;  // learning, cutting, writing
constexpr PairPart kAllParts[] = {PairPart::kTest, PairPart::kValidation, PairPart::kTrain};

struct PairPieces {
  std::vector<std::vector<int32_t>> source, target;
};

class PairPreparation {
 public:
  PairPreparation(Files& files, const PairSetOptions& options)
      : files_(files),
        options_(options),
        steps_(static_cast<int64_t>(options.files.size()) + (has_texts() ? 1 : 0) +
               kStepsBehindFiles) {}

  absl::StatusOr<PreparedPairs> Run() {
    PENSTOCK_RETURN_IF_ERROR(CheckOptions());
    PENSTOCK_RETURN_IF_ERROR(ReadAll());
    PENSTOCK_RETURN_IF_ERROR(Begin("learning pieces"));
    PENSTOCK_RETURN_IF_ERROR(MakePieces());
    PENSTOCK_RETURN_IF_ERROR(Begin("cutting pairs into pieces"));
    std::array<PairPieces, std::size(kAllParts)> pieces;
    for (const PairPart part : kAllParts) {
      PENSTOCK_ASSIGN_OR_RETURN(pieces[static_cast<size_t>(part)], Encode(Pairs(part)));
    }
    PENSTOCK_RETURN_IF_ERROR(Begin("writing pairs"));
    for (const PairPart part : kAllParts) {
      if (!Pairs(part).empty()) {
        PENSTOCK_RETURN_IF_ERROR(Write(part, pieces[static_cast<size_t>(part)]));
      }
    }
    return std::move(prepared_);
  }

 private:
  bool has_texts() const { return !options_.source_text.empty(); }
  const std::vector<TextPair>& Pairs(PairPart part) const {
    return parts_[static_cast<size_t>(part)];
  }
  std::string DirectoryOf(PairPart part) const {
    return JoinPath(options_.to, kPairParts[static_cast<size_t>(part)]);
  }
  double FractionOf(PairPart part) const {
    if (part == PairPart::kTest) return options_.test_fraction;
    if (part == PairPart::kValidation) return options_.validation_fraction;
    return 1.0 - options_.test_fraction - options_.validation_fraction;
  }

  // A step, with all that began before it done.
  absl::Status Begin(const std::string& what) {
    const int64_t done = begun_++;
    return options_.progress ? options_.progress(done, steps_, what) : absl::OkStatus();
  }

  absl::Status CheckOptions() const {
    if (options_.files.empty() && !has_texts()) {
      return absl::InvalidArgumentError(
          "there is nothing to read: name .mo and .tsv files, or two texts with --source and "
          "--target");
    }
    if (FractionOf(PairPart::kTrain) <= 0.0) {
      return absl::InvalidArgumentError(
          absl::StrCat("validation and test, ", options_.validation_fraction, " and ",
                       options_.test_fraction, " of the pairs, leave none for training"));
    }
    for (const PairPart part : kAllParts) {
      const std::string index = JoinPath(DirectoryOf(part), kRecordIndexFile);
      if (!files_.Exists(index)) continue;
      return absl::AlreadyExistsError(
          absl::StrCat(index, " is there already; remove the directory or name another"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadAll() {
    std::vector<TextPair> all;
    const auto add = [&](std::vector<TextPair> pairs) {
      all.insert(all.end(), std::make_move_iterator(pairs.begin()),
                 std::make_move_iterator(pairs.end()));
    };
    for (const std::string& file : options_.files) {
      PENSTOCK_RETURN_IF_ERROR(Begin(file));
      PENSTOCK_ASSIGN_OR_RETURN(std::vector<TextPair> pairs, ReadPairFile(files_, file));
      add(std::move(pairs));
    }
    if (has_texts()) {
      PENSTOCK_RETURN_IF_ERROR(Begin(options_.source_text));
      PENSTOCK_ASSIGN_OR_RETURN(
          std::vector<TextPair> pairs,
          ReadParallelTexts(files_, options_.source_text, options_.target_text));
      add(std::move(pairs));
    }
    CleanPairs clean = Clean(std::move(all), options_.bytes_max);
    std::vector<PairCount>& counts = prepared_.facts.counts;
    counts.push_back({kPairsRead, clean.read});
    for (size_t fault = 0; fault < clean.left_out.size(); ++fault) {
      counts.push_back({std::string(kPairFaultNames[fault]), clean.left_out[fault]});
    }
    for (TextPair& pair : clean.pairs) {
      const PairPart part =
          PartOf(pair.source, options_.validation_fraction, options_.test_fraction);
      parts_[static_cast<size_t>(part)].push_back(std::move(pair));
    }
    for (const PairPart part : kAllParts) {
      if (FractionOf(part) == 0.0 || !Pairs(part).empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "of ", clean.read, " pairs that were read, ", clean.pairs.size(),
          " are left, and none of them is in the part ", kPairParts[static_cast<size_t>(part)],
          ", which asks for ", FractionOf(part), " of them; give it more, or a larger part"));
    }
    return absl::OkStatus();
  }

  absl::Status MakePieces() {
    if (!options_.piece_model.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(std::string model,
                                files_.Read(options_.piece_model, kPieceModelBytesMax));
      absl::StatusOr<PieceFiles> loaded = LoadPieces(std::move(model), options_.stop);
      if (!loaded.ok()) return Annotate(loaded.status(), options_.piece_model);
      pieces_ = *std::move(loaded);
    } else {
      std::vector<std::string> lines;
      for (const TextPair& pair : Pairs(PairPart::kTrain)) {
        lines.push_back(pair.source);
        lines.push_back(pair.target);
      }
      PENSTOCK_ASSIGN_OR_RETURN(pieces_, TrainPieces(lines, options_.training, options_.stop));
    }
    const absl::StatusOr<PieceList> list = PieceList::Parse(pieces_.list);
    if (!list.ok()) return Annotate(list.status(), "the vocabulary");
    prepared_.facts.vocabulary = list->numbers();
    return absl::OkStatus();
  }

  absl::StatusOr<PairPieces> Encode(const std::vector<TextPair>& pairs) const {
    std::vector<std::string> sources, targets;
    for (const TextPair& pair : pairs) {
      sources.push_back(pair.source);
      targets.push_back(pair.target);
    }
    PairPieces pieces;
    if (pairs.empty()) return pieces;
    PENSTOCK_ASSIGN_OR_RETURN(pieces.source, EncodePieces(pieces_, sources, options_.stop));
    PENSTOCK_ASSIGN_OR_RETURN(pieces.target, EncodePieces(pieces_, targets, options_.stop));
    return pieces;
  }

  absl::Status Write(PairPart part, const PairPieces& pieces) {
    PreparedPairSet& prepared = prepared_.parts.emplace_back();
    prepared.directory = DirectoryOf(part);
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::unique_ptr<RecordWriter> writer,
        RecordWriter::Create(files_, prepared.directory, {}, options_.shard_bytes_max,
                             {{kPairSequences[0], "I32"}, {kPairSequences[1], "I32"}}));
    std::string sources, targets;
    const std::vector<TextPair>& pairs = Pairs(part);
    for (size_t i = 0; i < pairs.size(); ++i) {
      PENSTOCK_RETURN_IF_ERROR(writer->Add({BytesOf(pieces.source[i]), BytesOf(pieces.target[i])}));
      absl::StrAppend(&sources, pairs[i].source, "\n");
      absl::StrAppend(&targets, pairs[i].target, "\n");
    }
    const std::pair<const char*, std::string> further[] = {
        {kPairsFile, PrintPairFacts(prepared_.facts)},
        {kPieceModelFile, pieces_.model},
        {kPieceListFile, pieces_.list},
        {kSourceTextFile, sources},
        {kTargetTextFile, targets}};
    for (const auto& [name, content] : further) {
      PENSTOCK_RETURN_IF_ERROR(writer->AddFile(name, content));
    }
    PENSTOCK_ASSIGN_OR_RETURN(prepared.index, writer->Finish());
    return absl::OkStatus();
  }

  static absl::Span<const std::byte> BytesOf(const std::vector<int32_t>& pieces) {
    return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(pieces.data()),
                               pieces.size() * sizeof(int32_t));
  }

  Files& files_;
  const PairSetOptions& options_;
  const int64_t steps_;
  int64_t begun_ = 0;
  std::array<std::vector<TextPair>, std::size(kAllParts)> parts_;
  PieceFiles pieces_;
  PreparedPairs prepared_;
};

}  // namespace

PairPart PartOf(absl::string_view source, double validation_fraction, double test_fraction) {
  constexpr size_t kDigits = 13;  // 52 bits, which a double holds
  uint64_t word = 0;
  (void)absl::SimpleHexAtoi(Sha256Hex(source).substr(0, kDigits), &word);  // digits by contract
  const double place = static_cast<double>(word) * 0x1p-52;
  if (place < test_fraction) return PairPart::kTest;
  return place < test_fraction + validation_fraction ? PairPart::kValidation : PairPart::kTrain;
}

absl::StatusOr<PreparedPairs> PreparePairs(Files& files, const PairSetOptions& options) {
  return PairPreparation(files, options).Run();
}

}  // namespace penstock
