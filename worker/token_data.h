// TokenData: a sequence of tokens as samples of tokens and targets.
//
// A sample is context + 1 consecutive tokens: the inputs are all but the last, the targets all but the first. Training samples
// are of the first part of the sequence, and validation windows of the last or of another sequence.
//
//   random      training samples start anywhere, sampled uniformly
//   shuffled    the training part is cut into windows without gaps; every epoch has each once, in an order of its own
//   sequential  the same windows, as they are stored
//   blocks      the same windows in blocks that fill a microbatch each; every epoch has each block once, in an order of its own
//   contiguous  both parts are read as parallel streams (data/text_streams.h)
//
// A model that keeps documents apart also gets the position of each token in its document, which begins after a token that
// ends one, or where the sample does.
//
// Validation windows are spread evenly in all orders but the last. To evaluate a model, windows are those of a whole part
// instead, one after the other without gaps or in streams.
//
// Thread safety: immutable once open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/sample_order.h"
#include "data/text_streams.h"
#include "data/token_sequence.h"
#include "worker/data_source.h"

namespace penstock {

struct TokenDataOptions {
  std::string name;  // of the sequence, in messages: its path
  double validation_fraction =
      0.1;  // the last part of the sequence; without effect if there is another for validation
  int64_t context = 0;  // time steps of a sample
  OrderKind order = OrderKind::kRandom;
  bool needs_validation = true;    // whether windows will be asked for
  int64_t validation_windows = 0;  // how many there are in all, unless a part is evaluated
  int64_t batch = 0;               // samples of a step, which are read ahead; 0: nothing is
  int64_t streams = 0;             // in contiguous order: the samples of a step; 0: another order
  int64_t block = 0;  // in the order `blocks`: the samples of a microbatch; 0: another order
  std::optional<DataPart> evaluated = std::nullopt;
  int32_t end_of_text = -1;  // the token that ends a document; -1: none does
  uint64_t seed = 0;
  std::vector<AttachedFile> attached = {};
};

class TokenData : public DataSource {
 public:
  // The ports of a model that this fills, all i32 [context]: time step t has token t, token t + 1, and the position of token
  // t in its document.
  static constexpr int kTokens = 0;
  static constexpr int kTargets = 1;
  static constexpr int kPositions = 2;

  // `validation`: null if the last part of `training` is for validation.
  // Errors: InvalidArgument (empty, or too short, with what is needed).
  static absl::StatusOr<std::unique_ptr<TokenData>> Create(
      std::unique_ptr<TokenSequence> training, std::unique_ptr<TokenSequence> validation,
      const TokenDataOptions& options);

  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override;
  bool StartsAfresh(Split split, int64_t sample) const override;
  int64_t validation_samples() const override { return windows_; }
  absl::Span<const AttachedFile> attached_files() const override { return options_.attached; }

  // Where in its sequence a sample or window starts, in tokens.
  int64_t TrainingOffset(int64_t sample) const;
  int64_t ValidationOffset(int64_t window) const;

 private:
  TokenData(std::unique_ptr<TokenSequence> training, std::unique_ptr<TokenSequence> validation,
            const TokenDataOptions& options);
  const TokenSequence& validation() const { return validation_ ? *validation_ : *training_; }

  const std::unique_ptr<TokenSequence> training_, validation_;
  const TokenDataOptions options_;
  const int64_t training_tokens_;   // the first part; the rest is for validation
  const int64_t validation_first_;  // where windows begin
  const int64_t validation_tokens_;
  const std::optional<TextStreams> training_streams_, validation_streams_;  // in contiguous order
  const int64_t windows_;
};

}  // namespace penstock
