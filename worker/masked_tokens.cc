#include "worker/masked_tokens.h"

#include <algorithm>
#include <array>

#include "base/random.h"
#include "job/data/data_kind.h"
#include "worker/token_data.h"

namespace penstock {
namespace {

// What the draws are for ("mask" in ASCII), apart from those of validation.
constexpr uint32_t kMaskPurpose[] = {0x6d61736b, 0x6d61736c};
constexpr double kMaskedPart = 0.8;    // of those that are chosen
constexpr double kReplacedPart = 0.1;  // by any token

// In [0, 1).
double Fraction(uint32_t word) { return static_cast<double>(word) * 0x1p-32; }

}  // namespace

MaskedTokens::MaskedTokens(std::unique_ptr<DataSource> tokens, const ModelGraph& model,
                           MaskingOptions options)
    : tokens_(std::move(tokens)),
      options_(std::move(options)),
      context_(model.ports[TokenData::kTokens].type.dims[0]),
      vocabulary_(static_cast<uint32_t>(model.ports[TokenData::kTokens].ids)),
      ignored_(*model.loss().ignored) {
  for (size_t port = 0; port < model.ports.size(); ++port) {
    const bool is_targets = static_cast<int>(port) == model.targets();
    parts_.push_back(is_targets                                ? Part::kTargets
                     : port == TokenData::kTokens              ? Part::kTokens
                     : model.ports[port].name == kSegmentsPort ? Part::kSegments
                                                               : Part::kLengths);
  }
}

absl::Status MaskedTokens::Read(Split split, int64_t first_sample, int port,
                                absl::Span<std::byte> values) const {
  const Part part = parts_[port];
  const absl::Span<int32_t> numbers(reinterpret_cast<int32_t*>(values.data()),
                                    values.size() / sizeof(int32_t));
  if (part == Part::kSegments || part == Part::kLengths) {
    std::fill(numbers.begin(), numbers.end(),
              part == Part::kLengths ? static_cast<int32_t>(context_) : 0);
    return absl::OkStatus();
  }
  const absl::Status read = tokens_->Read(split, first_sample, TokenData::kTokens, values);
  if (!read.ok()) return read;
  const int64_t samples = static_cast<int64_t>(numbers.size()) / context_;
  for (int64_t i = 0; i < samples; ++i) {
    Mask(split, first_sample + i, part, numbers.subspan(i * context_, context_));
  }
  return absl::OkStatus();
}

void MaskedTokens::Mask(Split split, int64_t sample, Part part, absl::Span<int32_t> tokens) const {
  const auto low = static_cast<uint32_t>(sample), high = static_cast<uint32_t>(sample >> 32);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const std::array<uint32_t, 4> words = Philox(
        options_.seed,
        {low, high, static_cast<uint32_t>(t), kMaskPurpose[split == Split::kValidation ? 1 : 0]});
    const bool is_chosen = Fraction(words[0]) < options_.probability && !IsKept(tokens[t]);
    if (part == Part::kTargets) {
      if (!is_chosen) tokens[t] = ignored_;
      continue;
    }
    const double fate = Fraction(words[1]);
    if (!is_chosen || fate >= kMaskedPart + kReplacedPart) continue;
    const uint64_t any = uint64_t{words[2]} * vocabulary_ >> 32;
    tokens[t] = fate < kMaskedPart ? options_.mask : static_cast<int32_t>(any);
  }
}

bool MaskedTokens::IsKept(int32_t token) const {
  return std::find(options_.kept.begin(), options_.kept.end(), token) != options_.kept.end();
}

}  // namespace penstock
