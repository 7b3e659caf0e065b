#include "worker/synthetic_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

std::vector<std::byte> ReadPort(const SyntheticData& data, Split split, int64_t first, int port,
                                int64_t bytes) {
  std::vector<std::byte> values(bytes);
  EXPECT_THAT(data.Read(split, first, port, absl::MakeSpan(values)), IsOk());
  return values;
}

template <typename T>
std::vector<T> Typed(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(SyntheticData, Values_DependOnSeedSplitPortAndSampleAlone) {
  const std::vector<Port> ports = {{"a", {DType::kU8, {5, 3}}}, {"b", {DType::kU8, {5, 3}}}};
  const SyntheticData data(ports, 1, 1);
  const std::vector<std::byte> whole = ReadPort(data, Split::kTraining, 7, 0, 10 * 15);
  for (int64_t i = 0; i < 10; ++i) {
    const std::vector<std::byte> one = ReadPort(data, Split::kTraining, 7 + i, 0, 15);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin() + i * 15));
  }
  EXPECT_NE(ReadPort(data, Split::kTraining, 7, 1, 150), whole);
  EXPECT_NE(ReadPort(data, Split::kValidation, 7, 0, 150), whole);
  EXPECT_NE(ReadPort(data, Split::kTraining, 8, 0, 150), whole);
  EXPECT_NE(ReadPort(SyntheticData(ports, 1, 2), Split::kTraining, 7, 0, 150), whole);
}

TEST(SyntheticData, Ids_AreBelowThePorts) {
  const SyntheticData data({{"label", {DType::kI32, {}}, 10}, {"length", {DType::kI32, {}}, 0}}, 1,
                           1);
  std::set<int32_t> seen;
  for (const int32_t id : Typed<int32_t>(ReadPort(data, Split::kTraining, 0, 0, 4000))) {
    seen.insert(id);
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 9);
  EXPECT_EQ(Typed<int32_t>(ReadPort(data, Split::kTraining, 0, 1, 8)),
            (std::vector<int32_t>{1, 1}));
}

TEST(SyntheticData, Floats_HaveMeanZeroAndDeviationOne) {
  const SyntheticData data({{"x", {DType::kF32, {100}}}}, 1, 1);
  const std::vector<float> values = Typed<float>(ReadPort(data, Split::kTraining, 0, 0, 40'000));
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 0.03);
  EXPECT_NEAR(std::sqrt(squares / count), 1.0, 0.03);
}

TEST(SyntheticData, Sequences_StartAfreshInTheFirstStepAlone) {
  const SyntheticData data({{"x", {DType::kF32, {3}}}}, 4, 1);
  for (const Split split : {Split::kTraining, Split::kValidation}) {
    for (int64_t sample = 0; sample < 20; ++sample) {
      EXPECT_EQ(data.StartsAfresh(split, sample), sample < 4);
    }
  }
}

}  // namespace
}  // namespace penstock
