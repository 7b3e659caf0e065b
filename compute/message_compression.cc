#include "compute/message_compression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

using Kind = MessageCompression::Kind;

constexpr int64_t kRun = MessageCompression::kRun;
constexpr float kLargest = 127.0f;
constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kInfinity = 0x7f800000;
// Magnitudes, as bits, are found by 16 and then 15 of them.
constexpr int kLowBits = 15;
constexpr uint32_t kLowMask = (1u << kLowBits) - 1;

uint32_t Magnitude(float value) { return std::bit_cast<uint32_t>(value) & ~kSign; }

int64_t Runs(int64_t elements) { return (elements + kRun - 1) / kRun; }

int64_t Kept(double keep, int64_t elements) {
  return std::clamp<int64_t>(std::llround(keep * static_cast<double>(elements)), 1, elements);
}

absl::Status NotFinite() {
  return absl::FailedPreconditionError("a number of the message is not finite");
}

// The greatest magnitude of finite numbers; otherwise at least that of infinity.
uint32_t GreatestMagnitude(absl::Span<const float> values) {
  uint32_t greatest = 0;
  for (const float value : values) greatest = std::max(greatest, Magnitude(value));
  return greatest;
}

// Whether the 127 steps of a scale are numbers, and it is one that can be divided by.
bool IsScale(float scale) {
  return scale == 0.0f ||
         (scale >= std::numeric_limits<float>::min() && std::isfinite(scale * kLargest));
}

float ScaleOf(float greatest) {
  float scale = greatest / kLargest;
  if (scale < std::numeric_limits<float>::min()) return 0.0f;
  if (!std::isfinite(scale * kLargest)) scale = std::nextafter(scale, 0.0f);
  return scale;
}

// A number below 2^22, rounded to nearest, ties to even, as an addition does in the mode that all of Penstock computes in.
int32_t Nearest(float value) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return std::bit_cast<int32_t>(value + kShift) - std::bit_cast<int32_t>(kShift);
}

uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

void Store(float value, float& to) { to = value; }
void Store(float value, uint16_t& to) { to = ToBf16(value); }

// One run of a message. False: a number is outside of its range.
template <typename Number>
bool ExpandRun(float scale, const int8_t* from, int64_t count, Number* to) {
  bool inside = true;
  for (int64_t i = 0; i < count; ++i) {
    inside &= from[i] != std::numeric_limits<int8_t>::min();
    Store(static_cast<float>(from[i]) * scale, to[i]);
  }
  return inside;
}

template <typename Number>
absl::Status ExpandInt8(absl::Span<const std::byte> message, absl::Span<Number> values) {
  const auto elements = static_cast<int64_t>(values.size());
  const std::byte* const scales = message.data();
  const auto* const numbers =
      reinterpret_cast<const int8_t*>(message.data() + Runs(elements) * sizeof(float));
  for (int64_t run = 0; run < Runs(elements); ++run) {
    float scale = 0.0f;
    std::memcpy(&scale, scales + run * sizeof(float), sizeof(float));
    if (!IsScale(scale)) {
      return absl::InvalidArgumentError(
          absl::StrCat("scale ", run, " is ", scale, "; expected 0 or a number above"));
    }
    const int64_t first = run * kRun;
    const int64_t count = std::min(kRun, elements - first);
    if (ExpandRun(scale, numbers + first, count, values.data() + first)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a number of run ", run, " is -128; expected -127 to 127"));
  }
  return absl::OkStatus();
}

template <typename Number>
absl::Status ExpandTopK(int64_t kept, absl::Span<const std::byte> message,
                        absl::Span<Number> values) {
  std::fill(values.begin(), values.end(), Number{});
  const std::byte* const places = message.data();
  const std::byte* const numbers = message.data() + kept * sizeof(int32_t);
  int64_t before = -1;
  for (int64_t i = 0; i < kept; ++i) {
    int32_t place = 0;
    float value = 0.0f;
    std::memcpy(&place, places + i * sizeof(int32_t), sizeof(int32_t));
    std::memcpy(&value, numbers + i * sizeof(float), sizeof(float));
    if (place <= before || place >= static_cast<int64_t>(values.size())) {
      return absl::InvalidArgumentError(absl::StrCat("place ", i, " is ", place, "; expected ",
                                                     before + 1, " to ", values.size() - 1));
    }
    if (!std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat("value ", i, " is not finite"));
    }
    Store(value, values[place]);
    before = place;
  }
  return absl::OkStatus();
}

template <typename Number>
absl::Status ExpandTo(const MessageCompression& compression, absl::Span<const std::byte> message,
                      absl::Span<Number> values) {
  if (compression.kind == Kind::kInt8) return ExpandInt8(message, values);
  return ExpandTopK(Kept(compression.keep, static_cast<int64_t>(values.size())), message, values);
}

// The bytes of a message, also where they are no fewer.
int64_t BytesOf(const MessageCompression& compression, int64_t elements) {
  if (compression.kind == Kind::kInt8) {
    return Runs(elements) * static_cast<int64_t>(sizeof(float)) + elements;
  }
  return Kept(compression.keep, elements) * static_cast<int64_t>(sizeof(int32_t) + sizeof(float));
}

}  // namespace

int64_t CompressedBytes(const MessageCompression& compression, DType dtype, int64_t elements) {
  // Places are 32 bits wide; no message is that large.
  if (!compression.any() || elements < 1 || elements > std::numeric_limits<int32_t>::max()) {
    return 0;
  }
  const int64_t bytes = BytesOf(compression, elements);
  return bytes < elements * SizeOf(dtype) ? bytes : 0;
}

void AddNumbers(DType dtype, const void* from, absl::Span<float> values) {
  if (dtype == DType::kBf16) {
    const auto* const numbers = static_cast<const uint16_t*>(from);
    for (size_t i = 0; i < values.size(); ++i) values[i] += FromBf16(numbers[i]);
    return;
  }
  PENSTOCK_CHECK(dtype == DType::kF32);
  const auto* const numbers = static_cast<const float*>(from);
  for (size_t i = 0; i < values.size(); ++i) values[i] += numbers[i];
}

MessageCompressor::MessageCompressor(const MessageCompression& compression)
    : compression_(compression) {
  if (compression.kind != Kind::kTopK) return;
  high_counts_.resize(size_t{1} << (31 - kLowBits));
  low_counts_.resize(size_t{1} << kLowBits);
}

absl::Status MessageCompressor::Compress(absl::Span<float> values, absl::Span<std::byte> message) {
  PENSTOCK_CHECK(compression_.any() &&
                 static_cast<int64_t>(message.size()) ==
                     BytesOf(compression_, static_cast<int64_t>(values.size())));
  return compression_.kind == Kind::kInt8 ? CompressInt8(values, message)
                                          : CompressTopK(values, message);
}

absl::Status MessageCompressor::CompressInt8(absl::Span<float> values,
                                             absl::Span<std::byte> message) const {
  const auto elements = static_cast<int64_t>(values.size());
  std::byte* const scales = message.data();
  auto* const numbers = reinterpret_cast<int8_t*>(message.data() + Runs(elements) * sizeof(float));
  for (int64_t run = 0; run < Runs(elements); ++run) {
    const int64_t first = run * kRun;
    const absl::Span<float> of_run = values.subspan(first, kRun);
    const uint32_t greatest = GreatestMagnitude(of_run);
    if (greatest >= kInfinity) return NotFinite();
    const float scale = ScaleOf(std::bit_cast<float>(greatest));
    std::memcpy(scales + run * sizeof(float), &scale, sizeof(float));
    const float divisor = scale == 0.0f ? std::numeric_limits<float>::max() : scale;
    for (size_t i = 0; i < of_run.size(); ++i) {
      const int32_t number = Nearest(of_run[i] / divisor);
      numbers[first + i] = static_cast<int8_t>(number);
      of_run[i] -= static_cast<float>(number) * scale;
    }
  }
  return absl::OkStatus();
}

absl::Status MessageCompressor::CompressTopK(absl::Span<float> values,
                                             absl::Span<std::byte> message) {
  if (GreatestMagnitude(values) >= kInfinity) return NotFinite();
  const int64_t kept = Kept(compression_.keep, static_cast<int64_t>(values.size()));
  std::fill(high_counts_.begin(), high_counts_.end(), 0);
  for (const float value : values) ++high_counts_[Magnitude(value) >> kLowBits];
  int64_t left = kept;  // of the magnitudes with these bits
  uint32_t high = static_cast<uint32_t>(high_counts_.size()) - 1;
  for (; high_counts_[high] < left; --high) left -= high_counts_[high];
  std::fill(low_counts_.begin(), low_counts_.end(), 0);
  for (const float value : values) {
    const uint32_t magnitude = Magnitude(value);
    if (magnitude >> kLowBits == high) ++low_counts_[magnitude & kLowMask];
  }
  uint32_t low = kLowMask;
  for (; low_counts_[low] < left; --low) left -= low_counts_[low];

  const uint32_t least = high << kLowBits | low;  // of which `left` are sent
  std::byte* place_at = message.data();
  std::byte* value_at = message.data() + kept * sizeof(int32_t);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t magnitude = Magnitude(values[i]);
    if (magnitude < least || (magnitude == least && left-- <= 0)) continue;
    const auto place = static_cast<int32_t>(i);
    std::memcpy(place_at, &place, sizeof(place));
    std::memcpy(value_at, &values[i], sizeof(float));
    place_at += sizeof(place);
    value_at += sizeof(float);
    values[i] = 0.0f;
  }
  return absl::OkStatus();
}

absl::Status Expand(const MessageCompression& compression, absl::Span<const std::byte> message,
                    DType dtype, int64_t elements, void* values) {
  const int64_t expected = CompressedBytes(compression, dtype, elements);
  if (expected == 0 || static_cast<int64_t>(message.size()) != expected) {
    return absl::InvalidArgumentError(absl::StrCat("a compressed message has ", message.size(),
                                                   " bytes; expected ", expected, " for ", elements,
                                                   " numbers"));
  }
  const auto count = static_cast<size_t>(elements);
  if (dtype == DType::kBf16) {
    return ExpandTo(compression, message, absl::MakeSpan(static_cast<uint16_t*>(values), count));
  }
  return ExpandTo(compression, message, absl::MakeSpan(static_cast<float*>(values), count));
}

}  // namespace penstock
