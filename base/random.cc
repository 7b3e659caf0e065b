#include "base/random.h"

#include <cmath>
#include <numbers>

namespace penstock {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

std::array<uint32_t, 4> Philox(uint64_t key, std::array<uint32_t, 4> counter) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

uint32_t RandomStream::At(uint64_t index) const {
  const uint64_t block = index / 4;
  return Philox(
      seed_, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
              static_cast<uint32_t>(purpose_), static_cast<uint32_t>(purpose_ >> 32)})[index % 4];
}

uint64_t RandomStream::Below(uint64_t bound) {
  const uint64_t high = Next();
  const uint64_t word = high << 32 | Next();
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64);
}

double RandomStream::Uniform() { return Next() * 0x1p-32; }

double RandomStream::Normal() {
  const double radius = std::sqrt(-2.0 * std::log1p(-Uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * Uniform());
}

}  // namespace penstock
