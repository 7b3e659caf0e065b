#include "compute/message_compression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/bf16.h"

namespace penstock {
namespace {

constexpr int64_t kRun = MessageCompression::kRun;
constexpr float kLargest = 127.0f;
constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kInfinity = 0x7f800000;

uint32_t Magnitude(float value) { return std::bit_cast<uint32_t>(value) & ~kSign; }

int64_t Runs(int64_t elements) { return (elements + kRun - 1) / kRun; }

// How many numbers of a run of `elements` are sent.
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

// Of all runs.
int64_t KeptOfAll(double keep, int64_t elements) {
  const int64_t rest = elements % kRun;
  return elements / kRun * Kept(keep, kRun) + (rest > 0 ? Kept(keep, rest) : 0);
}

template <typename Number>
absl::Status ExpandTopK(double keep, absl::Span<const std::byte> message,
                        absl::Span<Number> values) {
  std::fill(values.begin(), values.end(), Number{});
  const auto elements = static_cast<int64_t>(values.size());
  const std::byte* value_at = message.data();
  const std::byte* place_at = message.data() + KeptOfAll(keep, elements) * sizeof(float);
  for (int64_t first = 0; first < elements; first += kRun) {
    const int64_t count = std::min(kRun, elements - first);
    int64_t before = -1;
    for (int64_t i = 0; i < Kept(keep, count); ++i) {
      float value = 0.0f;
      std::memcpy(&value, value_at, sizeof(value));
      value_at += sizeof(value);
      const auto place = static_cast<int64_t>(*place_at++);
      if (place <= before || place >= count) {
        return absl::InvalidArgumentError(absl::StrCat("place ", i, " of run ", first / kRun,
                                                       " is ", place, "; expected ", before + 1,
                                                       " to ", count - 1));
      }
      if (!std::isfinite(value)) {
        return absl::InvalidArgumentError(
            absl::StrCat("value ", i, " of run ", first / kRun, " is not finite"));
      }
      Store(value, values[first + place]);
      before = place;
    }
  }
  return absl::OkStatus();
}

template <typename Number>
absl::Status ExpandTo(const MessageCompression& compression, absl::Span<const std::byte> message,
                      absl::Span<Number> values) {
  if (compression.kind == MessageCompression::Kind::kInt8) return ExpandInt8(message, values);
  return ExpandTopK(compression.keep, message, values);
}

// The bytes of a message, also where they are no fewer.
int64_t BytesOf(const MessageCompression& compression, int64_t elements) {
  if (compression.kind == MessageCompression::Kind::kInt8) {
    return Runs(elements) * static_cast<int64_t>(sizeof(float)) + elements;
  }
  return KeptOfAll(compression.keep, elements) * static_cast<int64_t>(sizeof(float) + 1);
}

absl::Status CompressInt8(absl::Span<float> values, absl::Span<std::byte> message) {
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

int64_t CountFrom(uint32_t least, absl::Span<const float> values) {
  int32_t count = 0;
  for (const float value : values) count += Magnitude(value) >= least ? 1 : 0;
  return count;
}

// The `rank`-th greatest magnitude, bit by bit, which compilers make faster than a sort of part of them.
uint32_t GreatestOf(int64_t rank, absl::Span<const float> values) {
  uint32_t found = 0;
  for (uint32_t bit = kSign >> 1; bit > 0; bit >>= 1) {
    if (CountFrom(found | bit, values) >= rank) found |= bit;
  }
  return found;
}

absl::Status CompressTopK(double keep, absl::Span<float> values, absl::Span<std::byte> message) {
  const auto elements = static_cast<int64_t>(values.size());
  std::byte* value_at = message.data();
  std::byte* place_at = message.data() + KeptOfAll(keep, elements) * sizeof(float);
  for (int64_t first = 0; first < elements; first += kRun) {
    const absl::Span<float> of_run = values.subspan(first, kRun);
    if (GreatestMagnitude(of_run) >= kInfinity) return NotFinite();
    const int64_t kept = Kept(keep, static_cast<int64_t>(of_run.size()));
    const uint32_t least = GreatestOf(kept, of_run);
    int64_t of_least = kept - CountFrom(least + 1, of_run);  // that there is room for
    for (size_t i = 0; i < of_run.size(); ++i) {
      const uint32_t magnitude = Magnitude(of_run[i]);
      if (magnitude < least || (magnitude == least && of_least-- <= 0)) continue;
      std::memcpy(value_at, &of_run[i], sizeof(float));
      value_at += sizeof(float);
      *place_at++ = static_cast<std::byte>(i);
      of_run[i] = 0.0f;
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t CompressedBytes(const MessageCompression& compression, DType dtype, int64_t elements) {
  if (!compression.any() || elements < 1) return 0;
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

absl::Status Compress(const MessageCompression& compression, absl::Span<float> values,
                      absl::Span<std::byte> message) {
  PENSTOCK_CHECK(compression.any() &&
                 static_cast<int64_t>(message.size()) ==
                     BytesOf(compression, static_cast<int64_t>(values.size())));
  return compression.kind == MessageCompression::Kind::kInt8
             ? CompressInt8(values, message)
             : CompressTopK(compression.keep, values, message);
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
