// Translation: a directory of pairs as a model translates it, beside what the directory says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "data/pair_files.h"
#include "inference/checkpoint_model.h"

namespace penstock {

struct TranslationOptions {
  int64_t batch = 32;
  int threads = 1;
  int64_t pairs_max = 0;  // the first ones; 0: all
  // Called after each batch; its error ends the work. May be empty.
  std::function<absl::Status(int64_t done, int64_t all)> progress;
};

// Texts, each by pair, in the order of the directory.
struct Translation {
  std::vector<std::string> sources;
  std::vector<std::string> references;
  std::vector<std::string> hypotheses;
  int64_t left_out = 0;  // pairs whose source is longer than the model reads
};

// Decodes greedily (inference/greedy_decoder.h), pairs of similar length together. Errors: those of GreedyDecoder,
// PairFiles and `progress`; InvalidArgument (the model has fewer pieces than the vocabulary).
absl::StatusOr<Translation> Translate(Files& files, const CheckpointModel& model,
                                      const PairFiles& pairs, const TranslationOptions& options);

// Files of one line for each pair, as scorers of translations read them.
struct TranslationFiles {
  std::string sources;
  std::string references;
  std::string hypotheses;
};
// Writes them into `directory`, which is made, as sources.txt, references.txt and hypotheses.txt, in the place of older
// ones. Errors: those of `files`.
absl::StatusOr<TranslationFiles> WriteTranslation(Files& files, const Translation& translation,
                                                  const std::string& directory);

}  // namespace penstock
