#include "worker/text_data.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/status.h"

namespace penstock {
namespace {

// The stream of random numbers that sample positions come from ("data" in ASCII).
constexpr uint64_t kPurpose = 0x64617461;

int64_t TrainingBytes(int64_t size_bytes, double validation_fraction) {
  return size_bytes - static_cast<int64_t>(static_cast<double>(size_bytes) * validation_fraction);
}

absl::Status CheckPart(const TextOptions& options, const char* part, int64_t part_bytes,
                       int64_t size_bytes) {
  const int64_t sample_bytes = options.context + 1;
  const int64_t step_bytes = options.streams * options.context + 1;
  if (part_bytes >= (options.streams == 0 ? sample_bytes : step_bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      options.path, " is too short: its ", part, " part has ", part_bytes, " of ", size_bytes,
      " bytes, but ",
      options.streams == 0
          ? absl::StrCat("a sample needs context + 1 = ", sample_bytes)
          : absl::StrCat("a step in contiguous order needs batch * context + 1 = ", options.streams,
                         " * ", options.context, " + 1 = ", step_bytes),
      "; use a longer text, a shorter context", options.streams == 0 ? "" : ", a smaller batch",
      " or another validation_fraction"));
}

absl::Status CheckText(const std::string& text, const TextOptions& options) {
  const auto size_bytes = static_cast<int64_t>(text.size());
  const int64_t sample_bytes = options.context + 1;
  if (text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.path, " is empty; a sample needs ", sample_bytes, " bytes"));
  }
  const std::string sha256 = Sha256Hex(absl::string_view(text));
  if (!options.sha256.empty() && sha256 != options.sha256) {
    return absl::DataLossError(absl::StrCat(options.path, " is another file than the job's: its ",
                                            "SHA-256 is ", sha256, ", expected ", options.sha256));
  }
  const int64_t training = TrainingBytes(size_bytes, options.validation_fraction);
  if (options.evaluated == DataPart::kAll) {
    return CheckPart(options, "only", size_bytes, size_bytes);
  }
  if (options.evaluated != DataPart::kValidation) {
    PENSTOCK_RETURN_IF_ERROR(CheckPart(options, "training", training, size_bytes));
  }
  if (!options.needs_validation || options.evaluated == DataPart::kTraining) {
    return absl::OkStatus();
  }
  return CheckPart(options, "validation", size_bytes - training, size_bytes);
}

// None in random order, or of a part that is too short to be read (and is not, then).
std::optional<TextStreams> StreamsOf(int64_t part_bytes, const TextOptions& options) {
  if (options.streams == 0 || part_bytes <= options.streams * options.context) return std::nullopt;
  return TextStreams(part_bytes - 1, options.streams, options.context);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextData>> TextData::Open(Files& files, const TextOptions& options) {
  PENSTOCK_CHECK(options.context > 0);
  absl::StatusOr<std::string> text = files.Read(options.path, options.size_bytes_max);
  if (!text.ok()) return Annotate(text.status(), "training text");
  PENSTOCK_RETURN_IF_ERROR(Annotate(CheckText(*text, options), "training text"));
  return std::unique_ptr<TextData>(new TextData(*std::move(text), options));
}

TextData::TextData(std::string text, const TextOptions& options)
    : text_(std::move(text)),
      options_(options),
      training_bytes_(
          TrainingBytes(static_cast<int64_t>(text_.size()), options.validation_fraction)),
      validation_first_(options.evaluated.value_or(DataPart::kValidation) == DataPart::kValidation
                            ? training_bytes_
                            : 0),
      validation_bytes_((options.evaluated == DataPart::kTraining
                             ? training_bytes_
                             : static_cast<int64_t>(text_.size())) -
                        validation_first_),
      training_streams_(StreamsOf(training_bytes_, options)),
      validation_streams_(StreamsOf(validation_bytes_, options)),
      windows_(!options.evaluated.has_value()    ? options.validation_windows
               : validation_streams_.has_value() ? validation_streams_->windows() * options.streams
                                                 : (validation_bytes_ - 1) / options.context) {}

absl::Status TextData::Read(Split split, int64_t first_sample, int port,
                            absl::Span<std::byte> values) const {
  PENSTOCK_CHECK(port == kTokens || port == kTargets);
  auto* tokens = reinterpret_cast<int32_t*>(values.data());
  const int64_t samples = static_cast<int64_t>(values.size() / sizeof(int32_t)) / options_.context;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t sample = first_sample + i;
    const int64_t offset =
        split == Split::kTraining ? TrainingOffset(sample) : ValidationOffset(sample);
    CopyTokens(offset + (port == kTargets ? 1 : 0), tokens + i * options_.context);
  }
  return absl::OkStatus();
}

bool TextData::StartsAfresh(Split split, int64_t sample) const {
  const std::optional<TextStreams>& streams =
      split == Split::kTraining ? training_streams_ : validation_streams_;
  return !streams.has_value() || streams->StartsAfresh(sample);
}

int64_t TextData::TrainingOffset(int64_t sample) const {
  if (training_streams_.has_value()) return training_streams_->OffsetOf(sample);
  const RandomStream stream(options_.seed, kPurpose);
  const uint64_t high = stream.At(2 * static_cast<uint64_t>(sample));
  const uint64_t word = high << 32 | stream.At(2 * static_cast<uint64_t>(sample) + 1);
  const auto positions = static_cast<uint64_t>(training_bytes_ - options_.context);
  return static_cast<int64_t>((static_cast<unsigned __int128>(word) * positions) >> 64);
}

int64_t TextData::ValidationOffset(int64_t window) const {
  PENSTOCK_CHECK(window >= 0 && window < windows_);
  if (validation_streams_.has_value()) {
    return validation_first_ + validation_streams_->OffsetOf(window);
  }
  if (options_.evaluated.has_value()) return validation_first_ + window * options_.context;
  const int64_t positions = validation_bytes_ - options_.context;
  const auto place = static_cast<unsigned __int128>(window) * static_cast<uint64_t>(positions) /
                     static_cast<uint64_t>(windows_);
  return validation_first_ + static_cast<int64_t>(place);
}

void TextData::CopyTokens(int64_t offset, int32_t* tokens) const {
  const char* first = text_.data() + offset;
  std::transform(first, first + options_.context, tokens,
                 [](char byte) { return static_cast<int32_t>(static_cast<unsigned char>(byte)); });
}

}  // namespace penstock
