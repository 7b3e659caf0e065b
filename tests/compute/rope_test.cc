// The angles of rotary positions, against values by hand and those of Hugging Face's transformers 5.24 (LlamaConfig's
// rope_parameters, LlamaRotaryEmbedding), in float32.
#include "compute/ops/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/op.h"
#include "tests/support/status_matchers.h"

namespace penstock::rope {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::Pointwise;

std::vector<float> FrequenciesOf(const Attributes& given) {
  absl::StatusOr<Attributes> attributes = Complete((*FindOp("rope"))->attributes, given);
  EXPECT_THAT(attributes, IsOk());
  return Frequencies(*attributes);
}

Attributes Llama3(int64_t head_size, double base, int64_t original_context) {
  return {{"head_size", head_size},
          {"base", base},
          {"scaling", std::string("llama3")},
          {"factor", 8.0},
          {"low_frequency_factor", 1.0},
          {"high_frequency_factor", 4.0},
          {"original_context", original_context}};
}

TEST(RopeFrequencies, WithoutScaling_ArePowersOfTheBase) {
  EXPECT_THAT(FrequenciesOf({{"head_size", int64_t{8}}}),
              Pointwise(FloatEq(), {1.0f, 0.1f, 0.01f, 0.001f}));
  EXPECT_THAT(FrequenciesOf({{"head_size", int64_t{4}}, {"base", 16.0}}), ElementsAre(1.0f, 0.25f));
}

TEST(RopeFrequencies, Linear_AreDividedByTheFactor) {
  EXPECT_THAT(FrequenciesOf(
                  {{"head_size", int64_t{8}}, {"scaling", std::string("linear")}, {"factor", 4.0}}),
              Pointwise(FloatEq(), {0.25f, 0.025f, 0.0025f, 0.00025f}));
}

// In 128 time steps the pairs turn round 20.4, 2.04, 0.2 and 0.02 times. The first turns more than 4 times and is left,
// the last two less than once and are divided by 8. Of the second (2.0372 - 1) / (4 - 1) = 0.34573 is left:
// 0.1 (0.65427 / 8 + 0.34573).
TEST(RopeFrequencies, Llama3_DividesWhatTurnsSlowly) {
  const std::vector<float> frequencies = FrequenciesOf(Llama3(8, 10000.0, 128));
  EXPECT_THAT(frequencies, Pointwise(FloatEq(), {1.0f, 0.0427511781f, 0.00125f, 0.000125f}));
}

TEST(RopeFrequencies, Llama3_HaveTheBitsOfTransformers) {
  const std::vector<float> frequencies = FrequenciesOf(Llama3(128, 500000.0, 8192));
  ASSERT_EQ(frequencies.size(), 64u);
  EXPECT_EQ(frequencies[1], 0.814617217f);      // left
  EXPECT_EQ(frequencies[32], 0.000524846022f);  // between
  EXPECT_EQ(frequencies[40], 3.42810235e-05f);  // divided
  EXPECT_EQ(frequencies[63], 3.06892588e-07f);
}

TEST(RopeTurns, AreCosinesThenSines) {
  float turns[4];
  WriteTurns({0.5f, 0.0f}, 3, turns);
  EXPECT_THAT(turns, Pointwise(FloatEq(), {0.0707372f, 1.0f, 0.997495f, 0.0f}));
  WriteTurns({0.5f, 0.0f}, -3, turns);
  EXPECT_THAT(turns, Pointwise(FloatEq(), {0.0707372f, 1.0f, -0.997495f, 0.0f}));
}

// Exactly, the cosines of pairs 1 and 2 are 0.82395 and 0.88022.
TEST(RopeTurns, FarAway_AreOfAnglesInFloat) {
  const std::vector<float> frequencies =
      FrequenciesOf({{"head_size", int64_t{64}}, {"base", 500000.0}});
  std::vector<float> turns(64);
  WriteTurns(frequencies, 8191, turns.data());
  constexpr float kError = 1e-7f;
  EXPECT_NEAR(turns[0], -0.646390498f, kError);
  EXPECT_NEAR(turns[1], 0.823742986f, kError);
  EXPECT_NEAR(turns[2], 0.880157471f, kError);
  EXPECT_NEAR(turns[31], 0.999695301f, kError);
  EXPECT_NEAR(turns[32 + 1], 0.566963375f, kError);
  EXPECT_NEAR(turns[32 + 31], 0.0246840045f, kError);
}

}  // namespace
}  // namespace penstock::rope
