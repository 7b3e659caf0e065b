// A compressed message of activations or gradients, as a peer sends it.
//
// An input is the kind of compression, the type of the numbers, how many there are (two bytes), which share a message keeps,
// and the message. Its bytes are taken for numbers, too, and compressed.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "compute/message_compression.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

constexpr int64_t kFuzzedNumbersMax = 1024;

void CheckExpanded(const MessageCompression& compression, DType dtype, int64_t elements,
                   absl::string_view bytes) {
  // One number more, which stays as it is.
  std::vector<uint16_t> values((elements + 1) * SizeOf(dtype) / 2, 0x1234);
  const auto message =
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  const bool taken = Expand(compression, message, dtype, elements, values.data()).ok();
  PENSTOCK_CHECK(values.back() == 0x1234);
  if (!taken) return;
  FuzzAccepted();
  PENSTOCK_CHECK(static_cast<int64_t>(bytes.size()) ==
                 CompressedBytes(compression, dtype, elements));
  if (dtype != DType::kF32) return;
  for (int64_t i = 0; i < elements; ++i) {
    float value = 0.0f;
    std::memcpy(&value, values.data() + 2 * i, sizeof(value));
    PENSTOCK_CHECK(std::isfinite(value));
  }
}

void CheckCompressed(const MessageCompression& compression, absl::string_view bytes) {
  const auto elements = static_cast<int64_t>(bytes.size() / sizeof(float));
  const int64_t message_bytes = CompressedBytes(compression, DType::kF32, elements);
  if (message_bytes == 0) return;
  std::vector<float> values(elements);
  std::memcpy(values.data(), bytes.data(), elements * sizeof(float));
  std::vector<float> left = values;
  std::vector<std::byte> message(message_bytes);
  const bool taken = Compress(compression, absl::MakeSpan(left), absl::MakeSpan(message)).ok();
  PENSTOCK_CHECK(taken == std::all_of(values.begin(), values.end(),
                                      [](float value) { return std::isfinite(value); }));
  if (!taken) return;
  std::vector<float> sent(elements);
  PENSTOCK_CHECK(Expand(compression, message, DType::kF32, elements, sent.data()).ok());
  for (int64_t i = 0; i < elements; ++i) {
    const bool is_exact = sent[i] + left[i] == values[i];
    PENSTOCK_CHECK(compression.kind == MessageCompression::Kind::kTopK ? is_exact
                                                                       : std::isfinite(left[i]));
  }
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(compressed_message) {
  using namespace penstock;
  FuzzBytes input(data, size);
  MessageCompression compression;
  compression.kind = static_cast<MessageCompression::Kind>(input.Take<uint8_t>() % 3);
  const DType dtype = input.Take<uint8_t>() % 2 == 0 ? DType::kF32 : DType::kBf16;
  const int64_t elements = input.Take<uint16_t>() % kFuzzedNumbersMax;
  compression.keep = input.Take<uint8_t>() / 512.0;
  CheckExpanded(compression, dtype, elements, input.rest());
  CheckCompressed(compression, input.rest());
  return 0;
}
