// Kernels of image networks of every instruction set this machine has, against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "compute/cpu/kernels/best.h"
#include "compute/cuda/kernels/column_bands.h"

namespace penstock {
namespace {

class ChannelKernels : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() { return *GetParam(); }
};

constexpr int64_t kRows = 7;
// Around the lanes and strips of every instruction set.
const std::vector<int64_t> kChannelWidths = {1, 3, 8, 15, 16, 17, 32, 47, 63, 64, 65, 130};

std::vector<float> NormalFloats(int64_t count, double deviation, double mean, uint64_t purpose) {
  RandomStream random(1, purpose);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(mean + deviation * random.Normal()));
  }
  return values;
}

TEST_P(ChannelKernels, ChannelMoments_AreThoseOfColumns) {
  for (const int64_t width : kChannelWidths) {
    const std::vector<float> values = NormalFloats(kRows * width, 2.0, 5.0, 1);
    // What follows is not to be written.
    std::vector<float> means(width + 1, 77.0f), squares(width + 1, 77.0f);
    kernels().channel_moments(kRows, width, values.data(), means.data(), squares.data());
    for (int64_t c = 0; c < width; ++c) {
      double mean = 0.0;
      double square = 0.0;
      for (int64_t r = 0; r < kRows; ++r) mean += values[r * width + c] / double{kRows};
      for (int64_t r = 0; r < kRows; ++r) square += std::pow(values[r * width + c] - mean, 2);
      EXPECT_NEAR(means[c], mean, 2e-6) << c << " of " << width;
      EXPECT_NEAR(squares[c], square, 1e-6 * square + 1e-6) << c << " of " << width;
    }
    EXPECT_EQ(means[width], 77.0f);
    EXPECT_EQ(squares[width], 77.0f);
  }
}

TEST_P(ChannelKernels, ChannelNormal_AndItsGradient_MatchTheFormula) {
  for (const int64_t width : kChannelWidths) {
    const std::vector<float> input = NormalFloats(kRows * width, 2.0, 1.0, 1);
    const std::vector<float> gradient = NormalFloats(kRows * width, 1.0, 0.0, 2);
    const std::vector<float> mean = NormalFloats(width, 1.0, 0.0, 3);
    const std::vector<float> inverse = NormalFloats(width, 0.1, 1.0, 4);
    const std::vector<float> gain = NormalFloats(width, 1.0, 0.0, 5);
    const std::vector<float> bias = NormalFloats(width, 1.0, 0.0, 6);
    const ChannelRows rows = {kRows, width, input.data(), mean.data(), inverse.data()};
    std::vector<float> output(kRows * width + 1, 77.0f), grad_input(kRows * width + 1, 77.0f);
    std::vector<float> sums(width + 1, 77.0f), normal_sums(width + 1, 77.0f);
    kernels().channel_normal(rows, gain.data(), bias.data(), output.data());
    kernels().channel_gradient_sums(rows, gradient.data(), sums.data(), normal_sums.data());
    kernels().channel_gradient(rows, {gain.data(), bias.data(), mean.data()}, gradient.data(),
                               grad_input.data());
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0.0;
      double normal_sum = 0.0;
      for (int64_t r = 0; r < kRows; ++r) {
        const int64_t i = r * width + c;
        const double n = (static_cast<double>(input[i]) - mean[c]) * inverse[c];
        sum += gradient[i];
        normal_sum += gradient[i] * n;
        EXPECT_NEAR(output[i], n * gain[c] + bias[c], 3e-6);
        EXPECT_NEAR(grad_input[i], gradient[i] * gain[c] - n * bias[c] - mean[c], 3e-6);
      }
      EXPECT_NEAR(sums[c], sum, 3e-6);
      EXPECT_NEAR(normal_sums[c], normal_sum, 1e-5);
    }
    for (const std::vector<float>* written : {&output, &grad_input, &sums, &normal_sums}) {
      EXPECT_EQ(written->back(), 77.0f);
    }
  }
}

TEST_P(ChannelKernels, ResponseNormal_AndItsGradient_MatchTheFormula) {
  for (const int64_t width : kChannelWidths) {
    for (const int64_t size : {1, 4, 5, 9}) {
      const std::vector<float> input = NormalFloats(kRows * width, 2.0, 0.0, 1);
      const std::vector<float> gradient = NormalFloats(kRows * width, 1.0, 0.0, 2);
      const ResponseRows rows = {kRows, width, size / 2, (size - 1) / 2,
                                 0.3f,  0.6f,  1.5f,     input.data()};
      std::vector<float> workspace(kernels().response_workspace(width, size), std::nanf(""));
      std::vector<float> output(kRows * width + 1, 77.0f), grad_input(kRows * width + 1, 77.0f);
      kernels().response_normal(rows, workspace.data(), output.data());
      std::fill(workspace.begin(), workspace.end(), std::nanf(""));
      kernels().response_gradient(rows, gradient.data(), workspace.data(), grad_input.data());
      const auto in_window = [&](int64_t of, int64_t c) {
        return c >= of - rows.before && c <= of + rows.after;
      };
      for (int64_t r = 0; r < kRows; ++r) {
        const float* x = input.data() + r * width;
        const float* g = gradient.data() + r * width;
        std::vector<double> d(width, rows.k);
        for (int64_t c = 0; c < width; ++c) {
          for (int64_t other = 0; other < width; ++other) {
            if (in_window(c, other)) d[c] += double{rows.alpha} * x[other] * x[other];
          }
        }
        for (int64_t c = 0; c < width; ++c) {
          double expected = g[c] * std::pow(d[c], -rows.beta);
          for (int64_t other = 0; other < width; ++other) {
            if (!in_window(other, c)) continue;
            expected -= 2.0 * rows.alpha * rows.beta * x[c] * g[other] * x[other] *
                        std::pow(d[other], -rows.beta - 1.0);
          }
          EXPECT_NEAR(output[r * width + c], x[c] * std::pow(d[c], -rows.beta), 2e-6);
          EXPECT_NEAR(grad_input[r * width + c], expected, 4e-6);
        }
      }
      EXPECT_EQ(output.back(), 77.0f);
      EXPECT_EQ(grad_input.back(), 77.0f);
    }
  }
}

// Divisors from the smallest to the largest.
TEST_P(ChannelKernels, ResponseNormal_OfAnyMagnitude_IsRelativelyExact) {
  for (int exponent = -19; exponent < 60; ++exponent) {
    const auto k = static_cast<float>(std::ldexp(1.1, exponent));
    const float x = 3.0f;
    std::vector<float> workspace(kernels().response_workspace(1, 1));
    float output = 0.0f;
    kernels().response_normal({1, 1, 0, 0, 0.0f, 0.75f, k, &x}, workspace.data(), &output);
    const double expected = 3.0 * std::pow(double{k}, -0.75);
    EXPECT_NEAR(output, expected, 4e-6 * expected) << k;
  }
}

// Of a GPU's sums over rows. A kernel with more bands would not start.
TEST(ColumnBands, OfAnyRows_FitAGrid) {
  for (const int64_t rows : {int64_t{1}, int64_t{64}, int64_t{65}, int64_t{64} * 65535}) {
    EXPECT_EQ(cuda::ColumnBandRows(rows), 64) << rows << " rows keep the order that they had";
    EXPECT_EQ(cuda::ColumnBands(rows), (rows + 63) / 64);
  }
  for (const int64_t rows :
       {int64_t{64} * 65535 + 1, int64_t{65} * 65535, int64_t{65} * 65535 + 1, int64_t{1} << 40}) {
    EXPECT_LE(cuda::ColumnBands(rows), cuda::kColumnBandsMax) << rows;
    EXPECT_GE(cuda::ColumnBands(rows) * cuda::ColumnBandRows(rows), rows);
  }
  EXPECT_EQ(cuda::ColumnBandRows(int64_t{64} * 65535 + 1), 65);
}

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, ChannelKernels,
                         ::testing::ValuesIn(SupportedKernels()),
                         [](const auto& info) { return std::string(info.param->instruction_set); });

}  // namespace
}  // namespace penstock
