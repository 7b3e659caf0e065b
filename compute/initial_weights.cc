#include "compute/initial_weights.h"

#include <array>
#include <cmath>
#include <numbers>

#include "base/random.h"
#include "base/sha256.h"

namespace penstock {
namespace {

// The first 64 bits of the name's digest: a purpose that no other stream of the seed has.
uint64_t PurposeOf(const std::string& name) {
  return std::stoull(Sha256Hex("initial weights " + name).substr(0, 16), nullptr, 16);
}

// Two independent normal numbers from two uniform words (Box-Muller).
std::array<double, 2> Normals(uint32_t a, uint32_t b) {
  const double radius = std::sqrt(-2.0 * std::log((a + 1.0) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * (b * 0x1p-32);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Fills `size` numbers, four from each block of random words: make(words) -> four doubles.
template <typename Make>
std::vector<float> Fill(int64_t size, uint64_t seed, uint64_t purpose, Make make) {
  std::vector<float> values(size);
  for (int64_t first = 0; first < size; first += 4) {
    const auto block = static_cast<uint64_t>(first / 4);
    const std::array<double, 4> numbers =
        make(Philox(seed, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                           static_cast<uint32_t>(purpose), static_cast<uint32_t>(purpose >> 32)}));
    for (int64_t i = 0; i < 4 && first + i < size; ++i) {
      values[first + i] = static_cast<float>(numbers[i]);
    }
  }
  return values;
}

using Words = std::array<uint32_t, 4>;

std::vector<float> NormalWeights(int64_t size, double deviation, uint64_t seed, uint64_t purpose) {
  return Fill(size, seed, purpose, [deviation](const Words& words) {
    const std::array<double, 2> front = Normals(words[0], words[1]);
    const std::array<double, 2> back = Normals(words[2], words[3]);
    return std::array<double, 4>{deviation * front[0], deviation * front[1], deviation * back[0],
                                 deviation * back[1]};
  });
}

// In (-bound, bound).
std::vector<float> UniformWeights(int64_t size, double bound, uint64_t seed, uint64_t purpose) {
  return Fill(size, seed, purpose, [bound](const Words& words) {
    std::array<double, 4> numbers;
    for (int i = 0; i < 4; ++i) numbers[i] = bound * ((words[i] + 0.5) * 0x1p-31 - 1.0);
    return numbers;
  });
}

}  // namespace

std::vector<float> InitialWeights(const ParameterSpec& parameter, uint64_t seed) {
  const uint64_t purpose =
      PurposeOf(parameter.initial_as.empty() ? parameter.name : parameter.initial_as);
  switch (parameter.init) {
    case ParameterSpec::Init::kZeros:
      return std::vector<float>(parameter.size(), 0.0f);
    case ParameterSpec::Init::kOnes:
      return std::vector<float>(parameter.size(), 1.0f);
    case ParameterSpec::Init::kConstant:
      return std::vector<float>(parameter.size(), static_cast<float>(parameter.init_scale));
    case ParameterSpec::Init::kUniform:
      return UniformWeights(parameter.size(), parameter.init_scale, seed, purpose);
    case ParameterSpec::Init::kNormal:
      break;
  }
  return NormalWeights(parameter.size(), parameter.init_scale, seed, purpose);
}

}  // namespace penstock
