#include "worker/token_data.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status.h"

namespace penstock {
namespace {

// The stream of random numbers that sample positions come from ("data" in ASCII).
constexpr uint64_t kPurpose = 0x64617461;

// Of `tokens`, those of the first part.
int64_t TrainingTokens(int64_t tokens, const TokenDataOptions& options, bool has_validation) {
  if (has_validation) return tokens;
  return tokens - static_cast<int64_t>(static_cast<double>(tokens) * options.validation_fraction);
}

absl::Status CheckPart(const TokenDataOptions& options, const char* part, int64_t part_tokens,
                       int64_t tokens, bool is_trained = false) {
  const auto several = [&](const char* what, int64_t samples) {
    return absl::StrCat(what, " * context + 1 = ", samples, " * ", options.context,
                        " + 1 = ", samples * options.context + 1);
  };
  int64_t samples = 1;
  std::string needed = absl::StrCat("a sample needs context + 1 = ", options.context + 1);
  if (options.streams > 0) {
    samples = options.streams;
    needed = several("a step in contiguous order needs batch", samples);
  } else if (is_trained && options.block > 0) {
    samples = options.block;
    needed = several("a microbatch in the order blocks needs its samples", samples);
  }
  if (part_tokens >= samples * options.context + 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options.name, " is too short: its ", part, " part has ", part_tokens, " of ",
                   tokens, " tokens, but ", needed, "; use a longer text, a shorter context",
                   samples == 1 ? "" : ", a smaller batch", " or another validation_fraction"));
}

absl::Status CheckParts(const TokenSequence& training, const TokenSequence* validation,
                        const TokenDataOptions& options) {
  const int64_t tokens = training.tokens();
  if (tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.name, " is empty; a sample needs ", options.context + 1, " tokens"));
  }
  const int64_t first_part = TrainingTokens(tokens, options, validation != nullptr);
  if (options.evaluated == DataPart::kAll) return CheckPart(options, "only", tokens, tokens);
  if (options.evaluated != DataPart::kValidation) {
    PENSTOCK_RETURN_IF_ERROR(CheckPart(options, "training", first_part, tokens, true));
  }
  if (!options.needs_validation || options.evaluated == DataPart::kTraining) {
    return absl::OkStatus();
  }
  if (validation == nullptr) return CheckPart(options, "validation", tokens - first_part, tokens);
  return CheckPart(options, "validation", validation->tokens(), validation->tokens());
}

// None in other orders, or of a part that is too short to be read (and is not, then).
std::optional<TextStreams> StreamsOf(int64_t part_tokens, const TokenDataOptions& options) {
  if (options.streams == 0 || part_tokens <= options.streams * options.context) return std::nullopt;
  return TextStreams(part_tokens - 1, options.streams, options.context);
}

// Writes the positions of tokens in their documents in the tokens' place.
void TurnToPositions(int32_t end_of_text, absl::Span<int32_t> tokens) {
  int32_t position = 0;
  for (int32_t& token : tokens) {
    const bool ends = token == end_of_text;
    token = position;
    position = ends ? 0 : position + 1;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenData>> TokenData::Create(
    std::unique_ptr<TokenSequence> training, std::unique_ptr<TokenSequence> validation,
    const TokenDataOptions& options) {
  PENSTOCK_CHECK(options.context > 0);
  PENSTOCK_RETURN_IF_ERROR(CheckParts(*training, validation.get(), options));
  return std::unique_ptr<TokenData>(
      new TokenData(std::move(training), std::move(validation), options));
}

TokenData::TokenData(std::unique_ptr<TokenSequence> training,
                     std::unique_ptr<TokenSequence> validation, const TokenDataOptions& options)
    : training_(std::move(training)),
      validation_(std::move(validation)),
      options_(options),
      training_tokens_(TrainingTokens(training_->tokens(), options, validation_ != nullptr)),
      validation_first_(!validation_ && options.evaluated.value_or(DataPart::kValidation) ==
                                            DataPart::kValidation
                            ? training_tokens_
                            : 0),
      validation_tokens_((options.evaluated == DataPart::kTraining ? training_tokens_
                                                                   : this->validation().tokens()) -
                         validation_first_),
      training_streams_(StreamsOf(training_tokens_, options)),
      validation_streams_(StreamsOf(validation_tokens_, options)),
      windows_(!options.evaluated.has_value()    ? options.validation_windows
               : validation_streams_.has_value() ? validation_streams_->windows() * options.streams
                                                 : (validation_tokens_ - 1) / options.context) {}

absl::Status TokenData::Read(Split split, int64_t first_sample, int port,
                             absl::Span<std::byte> values) const {
  PENSTOCK_CHECK(port >= kTokens && port <= kPositions);
  const absl::Span<int32_t> tokens(reinterpret_cast<int32_t*>(values.data()),
                                   values.size() / sizeof(int32_t));
  const int64_t samples = static_cast<int64_t>(tokens.size()) / options_.context;
  for (int64_t i = 0; i < samples; ++i) {
    const absl::Span<int32_t> sample = tokens.subspan(i * options_.context, options_.context);
    const int64_t shift = port == kTargets ? 1 : 0;
    if (split == Split::kValidation) {
      PENSTOCK_RETURN_IF_ERROR(
          validation().Copy(ValidationOffset(first_sample + i) + shift, sample));
      if (port == kPositions) TurnToPositions(options_.end_of_text, sample);
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(training_->Copy(TrainingOffset(first_sample + i) + shift, sample));
    if (port == kPositions) TurnToPositions(options_.end_of_text, sample);
    // The same sample of the next step, for which the disk has a whole step of time.
    if (options_.batch == 0) continue;
    training_->WillNeed(TrainingOffset(first_sample + i + options_.batch), options_.context + 1);
  }
  return absl::OkStatus();
}

bool TokenData::StartsAfresh(Split split, int64_t sample) const {
  const std::optional<TextStreams>& streams =
      split == Split::kTraining ? training_streams_ : validation_streams_;
  return !streams.has_value() || streams->StartsAfresh(sample);
}

int64_t TokenData::TrainingOffset(int64_t sample) const {
  if (training_streams_.has_value()) return training_streams_->OffsetOf(sample);
  if (options_.order != OrderKind::kRandom) {
    const int64_t windows = (training_tokens_ - 1) / options_.context;
    if (options_.block > 0) {
      const int64_t block =
          SampleOrder(OrderKind::kShuffled, windows / options_.block, options_.seed)
              .RecordOf(sample / options_.block);
      return (block * options_.block + sample % options_.block) * options_.context;
    }
    return SampleOrder(options_.order, windows, options_.seed).RecordOf(sample) * options_.context;
  }
  const RandomStream stream(options_.seed, kPurpose);
  const uint64_t high = stream.At(2 * static_cast<uint64_t>(sample));
  const uint64_t word = high << 32 | stream.At(2 * static_cast<uint64_t>(sample) + 1);
  const auto positions = static_cast<uint64_t>(training_tokens_ - options_.context);
  return static_cast<int64_t>((static_cast<unsigned __int128>(word) * positions) >> 64);
}

int64_t TokenData::ValidationOffset(int64_t window) const {
  PENSTOCK_CHECK(window >= 0 && window < windows_);
  if (validation_streams_.has_value()) {
    return validation_first_ + validation_streams_->OffsetOf(window);
  }
  if (options_.evaluated.has_value()) return validation_first_ + window * options_.context;
  const int64_t positions = validation_tokens_ - options_.context;
  const auto place = static_cast<unsigned __int128>(window) * static_cast<uint64_t>(positions) /
                     static_cast<uint64_t>(windows_);
  return validation_first_ + static_cast<int64_t>(place);
}

}  // namespace penstock
