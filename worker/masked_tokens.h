// MaskedTokens: samples of tokens for a model that predicts the masked ones, such as BERT (Devlin et al., arXiv 1810.04805).
//
// Of the tokens of a sample each is chosen with the same probability. Of those that are chosen 80 % become the mask, 10 % any
// token, and 10 % stay; they are the targets, and all other targets do not count. What is chosen, and what becomes of it, is a
// function of the seed, the sample and the time step. Samples are numbered over all epochs, so each epoch masks others, and a
// run that resumes, on any number of workers, masks what it would have. Validation samples have one mask each.
//
// Thread safety: as that of the tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "model/graph.h"
#include "worker/data_source.h"

namespace penstock {

struct MaskingOptions {
  double probability = 0.15;
  int32_t mask = 0;  // the token that stands for a masked one
  std::vector<int32_t> kept =
      {};  // tokens that are never chosen: those that begin and end texts, padding
  uint64_t seed = 0;
};

class MaskedTokens : public DataSource {
 public:
  // `tokens`: a source of sequences of tokens (worker/token_data.h). REQUIRES: CheckReadsMasked of the model is OK.
  MaskedTokens(std::unique_ptr<DataSource> tokens, const ModelGraph& model, MaskingOptions options);

  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override;
  int64_t validation_samples() const override { return tokens_->validation_samples(); }
  absl::Span<const AttachedFile> attached_files() const override {
    return tokens_->attached_files();
  }

 private:
  enum class Part : uint8_t { kTokens, kTargets, kSegments, kLengths };

  // Turns the tokens of one sample into what the model reads, or into its targets.
  void Mask(Split split, int64_t sample, Part part, absl::Span<int32_t> tokens) const;
  bool IsKept(int32_t token) const;

  const std::unique_ptr<DataSource> tokens_;
  const MaskingOptions options_;
  const int64_t context_;
  const uint32_t vocabulary_;
  const int32_t ignored_;
  std::vector<Part> parts_;  // by port
};

}  // namespace penstock
