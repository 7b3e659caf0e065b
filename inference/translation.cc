#include "inference/translation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "inference/greedy_decoder.h"

namespace penstock {
namespace {

// Pairs that fit, the shortest source first, so that a batch ends early.
std::vector<int64_t> ShortestFirst(const PairFiles& pairs, int64_t count, int64_t pieces_max) {
  std::vector<int64_t> fitting;
  for (int64_t pair = 0; pair < count; ++pair) {
    if (pairs.PiecesOf(PairSide::kSource, pair) <= pieces_max) fitting.push_back(pair);
  }
  std::stable_sort(fitting.begin(), fitting.end(), [&](int64_t a, int64_t b) {
    return pairs.PiecesOf(PairSide::kSource, a) < pairs.PiecesOf(PairSide::kSource, b);
  });
  return fitting;
}

absl::Status CheckVocabulary(const CheckpointModel& model, const PairFiles& pairs) {
  for (const Port& port : model.graph.ports) {
    const bool has_pieces = !port.type.dims.empty();  // else lengths
    if (!has_pieces || port.ids == 0 || port.ids >= pairs.vocabulary().pieces) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(pairs.directory(), " has a vocabulary of ", pairs.vocabulary().pieces,
                     " pieces, but the input ", port.name, " of ", model.directory, " takes ",
                     port.ids, "; it was trained on other pieces"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Translation> Translate(Files& files, const CheckpointModel& model,
                                      const PairFiles& pairs, const TranslationOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckVocabulary(model, pairs));
  PENSTOCK_ASSIGN_OR_RETURN(const PieceList pieces, pairs.ReadPieceList(files));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<std::string> sources,
                            pairs.ReadTexts(files, PairSide::kSource));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<std::string> references,
                            pairs.ReadTexts(files, PairSide::kTarget));
  const PieceNumbers& numbers = pairs.vocabulary();
  PENSTOCK_ASSIGN_OR_RETURN(GreedyDecoder decoder,
                            GreedyDecoder::Create(files, model,
                                                  {.batch = options.batch,
                                                   .threads = options.threads,
                                                   .padding = numbers.padding,
                                                   .bos = numbers.bos,
                                                   .eos = numbers.eos}));

  const int64_t count =
      options.pairs_max > 0 ? std::min(options.pairs_max, pairs.pairs()) : pairs.pairs();
  const std::vector<int64_t> order = ShortestFirst(pairs, count, decoder.source_pieces_max());
  const auto all = static_cast<int64_t>(order.size());
  std::vector<std::string> hypotheses(count);
  for (int64_t first = 0; first < all; first += options.batch) {
    const int64_t end = std::min(first + options.batch, all);
    std::vector<std::vector<int32_t>> batch;
    for (int64_t i = first; i < end; ++i) {
      std::vector<int32_t>& source =
          batch.emplace_back(pairs.PiecesOf(PairSide::kSource, order[i]));
      PENSTOCK_RETURN_IF_ERROR(pairs.Read(PairSide::kSource, order[i], absl::MakeSpan(source)));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::vector<int32_t>> targets,
                              decoder.Decode(batch));
    for (int64_t i = first; i < end; ++i) hypotheses[order[i]] = pieces.TextOf(targets[i - first]);
    if (options.progress) PENSTOCK_RETURN_IF_ERROR(options.progress(end, all));
  }

  Translation translation = {.left_out = count - all};
  std::vector<int64_t> in_order = order;
  std::sort(in_order.begin(), in_order.end());
  for (const int64_t pair : in_order) {
    translation.sources.push_back(std::move(sources[pair]));
    translation.references.push_back(std::move(references[pair]));
    translation.hypotheses.push_back(std::move(hypotheses[pair]));
  }
  return translation;
}

absl::StatusOr<TranslationFiles> WriteTranslation(Files& files, const Translation& translation,
                                                  const std::string& directory) {
  const TranslationFiles written = {.sources = JoinPath(directory, "sources.txt"),
                                    .references = JoinPath(directory, "references.txt"),
                                    .hypotheses = JoinPath(directory, "hypotheses.txt")};
  PENSTOCK_RETURN_IF_ERROR(files.CreateDirectories(directory));
  const std::pair<const std::string*, const std::vector<std::string>*> contents[] = {
      {&written.sources, &translation.sources},
      {&written.references, &translation.references},
      {&written.hypotheses, &translation.hypotheses}};
  for (const auto& [path, lines] : contents) {
    std::string text;
    for (const std::string& line : *lines) absl::StrAppend(&text, line, "\n");
    PENSTOCK_RETURN_IF_ERROR(files.WriteDurably(*path, {text}));
  }
  return written;
}

}  // namespace penstock
