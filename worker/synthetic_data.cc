#include "worker/synthetic_data.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/random.h"

namespace penstock {
namespace {

// The stream of random numbers that values come from ("made" in ASCII).
constexpr uint32_t kMadePurpose = 0x6D616465;
constexpr double kUniformBound = 1.7320508075688772;  // of mean 0 and deviation 1: the root of 3

// The bits of the f32 that 32 random bits make.
uint32_t FloatBits(uint32_t word) {
  const auto value = static_cast<float>((word * 0x1p-31 - 1.0) * kUniformBound);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The four bytes of values that 32 random bits make.
uint32_t ValuesOf(const Port& port, uint32_t word) {
  switch (port.type.dtype) {
    case DType::kU8:
      return word;
    case DType::kF32:
      return FloatBits(word);
    case DType::kBf16:  // no input of a model is
    case DType::kI32:
      break;
  }
  if (port.ids == 0) return 1;
  return static_cast<uint32_t>((uint64_t{word} * static_cast<uint64_t>(port.ids)) >> 32);
}

}  // namespace

absl::Status SyntheticData::Read(Split split, int64_t first_sample, int port,
                                 absl::Span<std::byte> values) const {
  const Port& filled = ports_[port];
  constexpr int64_t kBlockBytes = 16;
  const int64_t sample_bytes = filled.type.size_bytes();
  const auto samples = static_cast<int64_t>(values.size()) / sample_bytes;
  PENSTOCK_CHECK(samples * sample_bytes == static_cast<int64_t>(values.size()));
  const auto stream = static_cast<uint32_t>(2 * port + (split == Split::kValidation ? 1 : 0));
  const int64_t blocks = (sample_bytes + kBlockBytes - 1) / kBlockBytes;
  for (int64_t i = 0; i < samples; ++i) {
    const auto first_block = static_cast<uint64_t>((first_sample + i) * blocks);
    std::byte* const sample = values.data() + i * sample_bytes;
    for (int64_t block = 0; block < blocks; ++block) {
      const uint64_t place = first_block + static_cast<uint64_t>(block);
      std::array<uint32_t, 4> words = Philox(
          seed_,
          {static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), kMadePurpose, stream});
      for (uint32_t& word : words) word = ValuesOf(filled, word);
      const int64_t offset = block * kBlockBytes;
      std::memcpy(sample + offset, words.data(), std::min(kBlockBytes, sample_bytes - offset));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
