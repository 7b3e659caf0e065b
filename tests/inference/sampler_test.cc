#include "inference/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace penstock {
namespace {

const std::vector<float> kLogits = {0.0f, 1.0f, 3.0f, 2.0f};

TEST(SamplerTest, Draw_TemperatureZero_TakesTheLikeliest) {
  Sampler sampler({.temperature = 0});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(sampler.Draw(kLogits), 2);
}

TEST(SamplerTest, Draw_EqualLogitsTemperatureZero_TakesTheFirst) {
  Sampler sampler({.temperature = 0});
  EXPECT_EQ(sampler.Draw(std::vector<float>{1.0f, 5.0f, 5.0f}), 1);
}

TEST(SamplerTest, Draw_TopK_NeverLeavesTheLikeliest) {
  Sampler sampler({.temperature = 100, .top_k = 2});
  std::map<int32_t, int> counts;
  for (int i = 0; i < 1000; ++i) ++counts[sampler.Draw(kLogits)];
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_GT(counts[2], 400);
  EXPECT_GT(counts[3], 400);
}

// Probabilities are about 0.64, 0.24, 0.09 and 0.03.
TEST(SamplerTest, Draw_TopP_TakesTheFewestThatHaveIt) {
  for (const auto& [top_p, tokens] :
       std::vector<std::pair<double, size_t>>{{1e-9, 1}, {0.6, 1}, {0.7, 2}, {0.9, 3}, {1.0, 4}}) {
    Sampler sampler({.top_p = top_p});
    std::map<int32_t, int> counts;
    for (int i = 0; i < 2000; ++i) ++counts[sampler.Draw(kLogits)];
    EXPECT_EQ(counts.size(), tokens) << top_p;
    EXPECT_GT(counts[2], 1000);
  }
}

TEST(SamplerTest, Draw_Many_FollowTheSoftmax) {
  constexpr int kDraws = 40'000;
  for (const double temperature : {0.7, 1.0, 2.0}) {
    Sampler sampler({.temperature = temperature, .seed = 7});
    std::vector<double> expected;
    double sum = 0;
    for (const float logit : kLogits) {
      expected.push_back(std::exp(logit / temperature));
      sum += expected.back();
    }
    std::map<int32_t, int> counts;
    for (int i = 0; i < kDraws; ++i) ++counts[sampler.Draw(kLogits)];
    for (size_t token = 0; token < kLogits.size(); ++token) {
      const double p = expected[token] / sum;
      const double deviation = std::sqrt(kDraws * p * (1 - p));
      EXPECT_NEAR(counts[static_cast<int32_t>(token)], kDraws * p, 5 * deviation);
    }
  }
}

TEST(SamplerTest, Draw_SameSeed_SameTokens) {
  Sampler a({.seed = 3});
  Sampler b({.seed = 3});
  Sampler c({.seed = 4});
  int different = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t drawn = a.Draw(kLogits);
    EXPECT_EQ(drawn, b.Draw(kLogits));
    different += drawn != c.Draw(kLogits);
  }
  EXPECT_GT(different, 10);
}

}  // namespace
}  // namespace penstock
