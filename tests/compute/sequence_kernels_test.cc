// The loops of LSTMs and additive attention, of every instruction set this machine has, against plain ones in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "compute/cpu/kernels/best.h"

namespace penstock::sequence_kernels {
namespace {

class SequenceKernels : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() { return *GetParam(); }
};

std::vector<float> Normals(int64_t count, uint64_t purpose) {
  RandomStream random(3, purpose);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return static_cast<float>(random.Normal()); });
  return values;
}

double Logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }
float Widened(Bf16 bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Around the lanes of every instruction set.
const std::vector<int64_t> kWidths = {1, 3, 4, 7, 8, 9, 16, 17, 33};
constexpr float kUntouched = 9.0f;
constexpr int64_t kRows = 3, kGap = 2;

// Gates, cells and outputs of a step in rows with gaps between them.
struct Step {
  explicit Step(int64_t width)
      : hidden(width),
        gates(kRows * (4 * hidden + kGap), kUntouched),
        cells(kRows * (hidden + kGap), kUntouched),
        before(Normals(kRows * hidden, 2)),
        sums(Normals(kRows * 4 * hidden, 1)) {
    for (int64_t r = 0; r < kRows; ++r) {
      std::copy_n(&sums[r * 4 * hidden], 4 * hidden, &gates[r * (4 * hidden + kGap)]);
    }
  }
  LstmStepRows rows() {
    return {.rows = kRows,
            .hidden = hidden,
            .gates = {gates.data(), 4 * hidden + kGap},
            .cells_before = {before.data(), hidden},
            .cells = {cells.data(), hidden + kGap}};
  }
  template <typename T>
  static bool GapsAreUntouched(const std::vector<T>& values, int64_t width, T untouched) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = width; c < width + kGap; ++c) {
        if (values[r * (width + kGap) + c] != untouched) return false;
      }
    }
    return true;
  }

  const int64_t hidden;
  std::vector<float> gates, cells;
  const std::vector<float> before, sums;
};

TEST_P(SequenceKernels, LstmStep_AndItsGradient_MatchTheFormula) {
  for (const int64_t hidden : kWidths) {
    SCOPED_TRACE(hidden);
    Step step(hidden);
    const std::vector<float> bias = Normals(4 * hidden, 3), added = Normals(kRows * 4 * hidden, 4);
    std::vector<float> output(kRows * (hidden + kGap), kUntouched), state(kRows * hidden);
    std::vector<float> kept(kRows * (hidden + kGap), kUntouched);
    kernels().f32.lstm_forward(
        {step.rows(), bias.data(), added.data(), nullptr, 0, {output.data(), hidden + kGap}},
        state.data(), {kept.data(), hidden + kGap});
    const std::vector<float> incoming = Normals(kRows * hidden, 5);
    const std::vector<float> recurrent = Normals(kRows * hidden, 6);
    const std::vector<float> of_cells = Normals(kRows * hidden, 7);
    std::vector<float> cell_gradients = of_cells, bias_sums(kRows * 4 * hidden, 0.5f);
    std::vector<float> gradients(kRows * 4 * hidden);
    std::vector<float> kept_gradients(kRows * (4 * hidden + kGap), kUntouched);
    kernels().f32.lstm_gradient({step.rows(),
                                 {incoming.data(), hidden},
                                 recurrent.data(),
                                 cell_gradients.data(),
                                 bias_sums.data()},
                                gradients.data(), {kept_gradients.data(), 4 * hidden + kGap});
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < hidden; ++c) {
        const auto sum = [&](int gate) {
          const int64_t at = gate * hidden + c;
          return static_cast<double>(step.sums[r * 4 * hidden + at]) + bias[at] +
                 added[r * 4 * hidden + at];
        };
        const double i = Logistic(sum(0)), f = Logistic(sum(1)), o = Logistic(sum(3));
        const double g = std::tanh(sum(2));
        const double before = step.before[r * hidden + c];
        const double cell = f * before + i * g;
        EXPECT_NEAR(step.cells[r * (hidden + kGap) + c], cell, 1e-6 * (1.0 + std::abs(cell)));
        for (const float value : {output[r * (hidden + kGap) + c], state[r * hidden + c],
                                  kept[r * (hidden + kGap) + c]}) {
          EXPECT_NEAR(value, o * std::tanh(cell), 1e-6);
        }
        const double dh = static_cast<double>(incoming[r * hidden + c]) + recurrent[r * hidden + c];
        const double dc = of_cells[r * hidden + c] + dh * o / std::pow(std::cosh(cell), 2);
        EXPECT_NEAR(cell_gradients[r * hidden + c], dc * f, 3e-6);
        const std::array<double, 4> expected = {dc * g * i * (1 - i), dc * before * f * (1 - f),
                                                dc * i * (1 - g * g),
                                                dh * std::tanh(cell) * o * (1 - o)};
        for (int gate = 0; gate < 4; ++gate) {
          const int64_t at = gate * hidden + c;
          EXPECT_NEAR(gradients[r * 4 * hidden + at], expected[gate], 3e-6) << gate;
          EXPECT_EQ(kept_gradients[r * (4 * hidden + kGap) + at], gradients[r * 4 * hidden + at]);
          EXPECT_NEAR(bias_sums[r * 4 * hidden + at], 0.5 + expected[gate], 3e-6) << gate;
        }
      }
    }
    EXPECT_TRUE(Step::GapsAreUntouched(step.gates, 4 * hidden, kUntouched));
    EXPECT_TRUE(Step::GapsAreUntouched(step.cells, hidden, kUntouched));
    EXPECT_TRUE(Step::GapsAreUntouched(output, hidden, kUntouched));
    EXPECT_TRUE(Step::GapsAreUntouched(kept, hidden, kUntouched));
    EXPECT_TRUE(Step::GapsAreUntouched(kept_gradients, 4 * hidden, kUntouched));
  }
}

TEST_P(SequenceKernels, LstmStep_InBf16_RoundsWhatProductsReadAndNothingElse) {
  constexpr int64_t kHidden = 19;
  const std::vector<float> bias = Normals(4 * kHidden, 3), added = Normals(kRows * 4 * kHidden, 4);
  Step full(kHidden), rounded(kHidden);
  std::vector<float> output(kRows * kHidden), rounded_output(kRows * kHidden);
  std::vector<float> state(kRows * kHidden);
  std::vector<Bf16> rounded_state(kRows * kHidden);
  std::vector<Bf16> expected(kRows * kHidden);
  kernels().f32.lstm_forward(
      {full.rows(), bias.data(), added.data(), nullptr, 0, {output.data(), kHidden}}, state.data(),
      {});
  kernels().bf16.lstm_forward(
      {rounded.rows(), bias.data(), added.data(), nullptr, 0, {rounded_output.data(), kHidden}},
      rounded_state.data(), {});
  kernels().to_bf16(kRows * kHidden, state.data(), expected.data());
  EXPECT_EQ(rounded_output, output);
  EXPECT_EQ(rounded.cells, full.cells);
  EXPECT_EQ(rounded_state, expected);

  const std::vector<float> incoming = Normals(kRows * kHidden, 5);
  std::vector<float> cell_gradients(kRows * kHidden), bias_sums(kRows * 4 * kHidden);
  std::vector<Bf16> gradients(kRows * 4 * kHidden), kept(kRows * 4 * kHidden);
  kernels().bf16.lstm_gradient({rounded.rows(),
                                {incoming.data(), kHidden},
                                added.data(),
                                cell_gradients.data(),
                                bias_sums.data()},
                               gradients.data(), {kept.data(), 4 * kHidden});
  EXPECT_EQ(kept, gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_NEAR(Widened(gradients[i]), bias_sums[i], 0x1p-8 * std::abs(bias_sums[i]));
  }
}

TEST_P(SequenceKernels, LstmStep_AfterASamplesEnd_IsZeroAndPassesNoGradient) {
  for (const int64_t hidden : kWidths) {
    Step step(hidden);
    const std::vector<float> zeros(kRows * 4 * hidden, 0.0f);
    const std::vector<int32_t> lengths = {2, 3, 4};
    std::vector<float> output(kRows * hidden), state(kRows * hidden), kept(kRows * hidden);
    kernels().f32.lstm_forward(
        {step.rows(), zeros.data(), zeros.data(), lengths.data(), 3, {output.data(), hidden}},
        state.data(), {kept.data(), hidden});
    const std::vector<float> ones(kRows * hidden, 1.0f);
    std::vector<float> cell_gradients = ones, bias_sums(kRows * 4 * hidden);
    std::vector<float> gradients(kRows * 4 * hidden), kept_gradients(kRows * 4 * hidden);
    kernels().f32.lstm_gradient(
        {step.rows(), {ones.data(), hidden}, ones.data(), cell_gradients.data(), bias_sums.data()},
        gradients.data(), {kept_gradients.data(), 4 * hidden});
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < hidden; ++c) {
        const bool runs = r == 2;
        EXPECT_EQ(output[r * hidden + c] != 0.0f, runs);
        EXPECT_EQ(state[r * hidden + c] != 0.0f, runs);
        EXPECT_EQ(kept[r * hidden + c] != 0.0f, runs);
        EXPECT_EQ(step.cells[r * (hidden + kGap) + c] != 0.0f, runs);
        EXPECT_EQ(cell_gradients[r * hidden + c] != 0.0f, runs);
        for (int gate = 0; gate < 4; ++gate) {
          EXPECT_EQ(gradients[(4 * r + gate) * hidden + c] != 0.0f, runs);
        }
      }
    }
  }
}

TEST_P(SequenceKernels, AdditiveAttention_AndItsGradient_MatchTheFormula) {
  constexpr int64_t kQueries = 3, kStride = 7;
  for (const int64_t units : kWidths) {
    for (const int64_t width : {1, 5, 16, 18}) {
      for (const int64_t keys : {1, 2, 7}) {
        SCOPED_TRACE(testing::Message()
                     << units << " units, width " << width << ", " << keys << " keys");
        const std::vector<float> query = Normals(kQueries * units, 1),
                                 key = Normals(keys * units, 2);
        const std::vector<float> direction = Normals(units, 3), memory = Normals(keys * width, 4);
        const std::vector<float> incoming = Normals(kQueries * width, 5);
        std::vector<float> weights(kQueries * kStride, kUntouched), output(kQueries * width);
        const AdditiveAttention attention = {.queries = kQueries,
                                             .keys = keys,
                                             .units = units,
                                             .width = width,
                                             .query = query.data(),
                                             .key = key.data(),
                                             .direction = direction.data(),
                                             .memory = memory.data(),
                                             .weights = {weights.data(), kStride}};
        kernels().additive_attention_forward(attention, output.data());
        std::vector<float> of_query(kQueries * units), of_key(keys * units), of_direction(units);
        std::vector<float> of_memory(keys * width), workspace(keys);
        kernels().additive_attention_backward(
            attention, incoming.data(),
            {of_query.data(), of_key.data(), of_direction.data(), of_memory.data()},
            workspace.data());

        std::vector<double> expected_query(kQueries * units), expected_key(keys * units);
        std::vector<double> expected_direction(units), expected_memory(keys * width);
        for (int64_t q = 0; q < kQueries; ++q) {
          const auto squashed = [&](int64_t k, int64_t u) {
            return std::tanh(static_cast<double>(query[q * units + u]) + key[k * units + u]);
          };
          std::vector<double> chances(keys), slopes(keys);
          double sum = 0.0, mean = 0.0;
          for (int64_t k = 0; k < keys; ++k) {
            double score = 0.0;
            for (int64_t u = 0; u < units; ++u) score += direction[u] * squashed(k, u);
            sum += chances[k] = std::exp(score);
          }
          for (int64_t k = 0; k < keys; ++k) {
            chances[k] /= sum;
            EXPECT_NEAR(weights[q * kStride + k], chances[k], 3e-6);
            for (int64_t c = 0; c < width; ++c) {
              const double slope = incoming[q * width + c];
              slopes[k] += slope * memory[k * width + c];
              expected_memory[k * width + c] += chances[k] * slope;
            }
            mean += chances[k] * slopes[k];
          }
          for (int64_t c = 0; c < width; ++c) {
            double mixed = 0.0;
            for (int64_t k = 0; k < keys; ++k) mixed += chances[k] * memory[k * width + c];
            EXPECT_NEAR(output[q * width + c], mixed, 1e-5);
          }
          for (int64_t k = 0; k < keys; ++k) {
            const double slope = chances[k] * (slopes[k] - mean);
            for (int64_t u = 0; u < units; ++u) {
              const double y = squashed(k, u);
              expected_query[q * units + u] += slope * direction[u] * (1 - y * y);
              expected_key[k * units + u] += slope * direction[u] * (1 - y * y);
              expected_direction[u] += slope * y;
            }
          }
          for (int64_t k = keys; k < kStride; ++k) {
            EXPECT_EQ(weights[q * kStride + k], kUntouched);
          }
        }
        const auto expect_near = [](const std::vector<float>& actual,
                                    const std::vector<double>& expected) {
          for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 5e-5);
        };
        expect_near(of_query, expected_query);
        expect_near(of_key, expected_key);
        expect_near(of_direction, expected_direction);
        expect_near(of_memory, expected_memory);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, SequenceKernels,
                         ::testing::ValuesIn(SupportedKernels()),
                         [](const auto& info) { return std::string(info.param->instruction_set); });

}  // namespace
}  // namespace penstock::sequence_kernels
