// PairsData: pairs of sequences as samples. A model's ports are filled by name:
//
//   source          i32 [source time]  the source's pieces, the end of a sentence (EOS), padding
//   source_lengths  i32 []             how many of these count: pieces and end
//   inputs          i32 [target time]  what a decoder reads: the beginning of a sentence (BOS), the target's pieces, padding
//   targets         i32 [target time]  what it is to say: the target's pieces, EOS, padding
//   target_lengths  i32 []             how many of these count
//
// Padding is a piece that the loss ignores, so that it changes neither loss nor gradient. Pairs that do not fit, end
// included, are left out and never cut.
//
// Training samples are numbered over the whole job and come in batches of similar length (data/length_buckets.h).
// Validation samples are spread evenly over the pairs that fit, from the shortest to the longest.
//
// Pairs are read from where they lie when they are asked for, and of them what the asked port needs. What is held in
// memory is where each begins (data/record_files.h) and their order by length, eight bytes each.
//
// Thread safety: immutable once open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/length_buckets.h"
#include "data/pair_files.h"
#include "model/graph.h"
#include "worker/data_source.h"

namespace penstock {

struct PairsOptions {
  BucketOptions buckets;           // the batch is that of a step
  int64_t validation_samples = 0;  // in a validation; 0: there is none
};

// The longest pairs that the ports take; without a port there is no limit.
PairLimits PairLimitsOf(absl::Span<const Port> ports);

class PairsData : public DataSource {
 public:
  // `validation`: null if there is none. REQUIRES: `model` reads what data.pairs fills (job/data/pairs_kind.cc), and
  // the batch and the buckets are positive.
  // Errors: InvalidArgument (a vocabulary larger than a port's ids; a loss that does not ignore padding; two directories
  // with different vocabularies; fewer pairs that fit than a batch, or a validation, has).
  static absl::StatusOr<std::unique_ptr<PairsData>> Open(std::unique_ptr<PairFiles> training,
                                                         std::unique_ptr<PairFiles> validation,
                                                         const ModelGraph& model,
                                                         const PairsOptions& options);

  // To evaluate a model: the samples of validation are all pairs that fit, the shortest first, and there are none of
  // training. Errors: InvalidArgument (as of Open; no pair fits).
  static absl::StatusOr<std::unique_ptr<PairsData>> OpenToEvaluate(std::unique_ptr<PairFiles> pairs,
                                                                   const ModelGraph& model);

  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override;

  int64_t validation_samples() const override {
    return static_cast<int64_t>(validation_pairs_.size());
  }

 private:
  enum class Content : uint8_t { kSource, kSourceLength, kInputs, kTargets, kTargetLength };
  struct PairPort {
    Content content;
    int64_t time = 1;  // values of a sample
  };

  PairsData(std::unique_ptr<PairFiles> training, std::unique_ptr<PairFiles> validation,
            const PairsOptions& options)
      : training_(std::move(training)), validation_(std::move(validation)), options_(options) {}
  // Errors: InvalidArgument (a vocabulary larger than a port's ids; a loss that does not ignore padding).
  absl::Status BindPorts(const ModelGraph& model, const PairFiles& pairs);
  absl::Status OrderTraining(const PairLimits& limits);
  absl::Status OrderValidation(const PairLimits& limits);
  static absl::Status Fill(const PairFiles& pairs, int64_t pair, const PairPort& port,
                           absl::Span<int32_t> values);

  const std::unique_ptr<PairFiles> training_;    // null: it is opened to evaluate
  const std::unique_ptr<PairFiles> validation_;  // null: there is none
  const PairsOptions options_;
  std::vector<PairPort> ports_;            // by port
  std::optional<LengthBuckets> order_;     // of training
  std::vector<int64_t> validation_pairs_;  // by validation sample
};

}  // namespace penstock
