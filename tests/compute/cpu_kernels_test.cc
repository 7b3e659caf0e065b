// Kernels of every instruction set this machine has, against plain loops in double. The suite of
// conformance.h sees the fastest set only.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "base/random.h"
#include "compute/cpu/context.h"
#include "compute/cpu/head_attention.h"
#include "compute/cpu/kernels/best.h"

namespace penstock {
namespace {

class CpuKernels : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() { return *GetParam(); }
};

std::vector<float> RandomFloats(int64_t count, double deviation, uint64_t purpose = 1) {
  RandomStream random(1, purpose);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(),
                [&] { return static_cast<float>(deviation * random.Normal()); });
  return values;
}

// Widths around the lanes of every instruction set.
const std::vector<int64_t> kWidths = {1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 64, 100};

TEST_P(CpuKernels, BiasGelu_MatchesTheTanhFormAndItsDerivative) {
  const double root = std::sqrt(2.0 / std::numbers::pi);
  std::vector<float> z;
  for (double value = -12.0; value <= 12.0; value += 0.01) {
    z.push_back(static_cast<float>(value));
  }
  const auto width = static_cast<int64_t>(z.size());
  const std::vector<float> bias(width, 0.0f);
  std::vector<float> derivative(width), gelu(width);
  kernels().f32.bias_gelu(1, width, z.data(), bias.data(), derivative.data(), gelu.data());
  for (int64_t i = 0; i < width; ++i) {
    const double x = z[i];
    const double u = root * (x + 0.044715 * x * x * x);
    const double slope = root * (1 + 3 * 0.044715 * x * x);
    // 1 + tanh u, written so that it does not cancel.
    const double one_plus_tanh = 2.0 / (1.0 + std::exp(-2 * u));
    const double expected = 0.5 * x * one_plus_tanh;
    const double sech = 1.0 / std::cosh(u);
    // Relative, also in the far negative tail (where rounding u is what remains) down to the
    // smallest floats.
    EXPECT_NEAR(gelu[i], expected, (1e-6 + 5e-7 * std::abs(u)) * std::abs(expected) + 1e-36) << x;
    EXPECT_NEAR(derivative[i], 0.5 * one_plus_tanh + 0.5 * x * sech * sech * slope, 1e-6) << x;
  }
}

// compute/rounding.h, for starts and counts in the middle of its groups.
TEST_P(CpuKernels, RoundToBf16_RoundsEachElementByItsOwnWord) {
  const StochasticRounding rounding = {KeyOfRounding(3), 0xFEDCBA9876543210, 77};
  const std::vector<float> values = RandomFloats(700, 1.0);
  for (const int64_t first : {0, 64, 1 << 14}) {
    for (const int64_t count : {1, 7, 16, 63, 64, 65, 130, 700}) {
      std::vector<Bf16> rounded(count + 8, 0xABCD);
      kernels().round_to_bf16(rounding, first, count, values.data(), rounded.data());
      for (int64_t i = 0; i < count; ++i) {
        const int64_t element = first + i;
        const auto words = Philox(
            rounding.key, {static_cast<uint32_t>(element / 64 * 16 + element % 16),
                           static_cast<uint32_t>(rounding.parameter),
                           static_cast<uint32_t>(rounding.parameter >> 32), rounding.version});
        ASSERT_EQ(rounded[i],
                  StochasticBf16(std::bit_cast<uint32_t>(values[i]), words[element % 64 / 16]))
            << "element " << element << " of " << count;
      }
      for (int64_t i = count; i < count + 8; ++i) ASSERT_EQ(rounded[i], 0xABCD) << i;
    }
  }
}

// A causal head whose query, key and value of a time step lie side by side, `stride` floats after those of the last.
AttentionHead CausalHead(int64_t time, int64_t size, int64_t stride, float scale,
                         const std::vector<float>& rows) {
  return {.queries = time,
          .keys = time,
          .size = size,
          .causal = true,
          .scale = scale,
          .query = {rows.data(), stride},
          .key = {rows.data() + size, stride},
          .value = {rows.data() + 2 * size, stride}};
}
AttentionHeadGradient GradientOf(const AttentionHead& head, std::vector<float>& gradient) {
  const int64_t stride = head.query.stride;
  return {.query = {gradient.data(), stride},
          .key = {gradient.data() + head.size, stride},
          .value = {gradient.data() + 2 * head.size, stride}};
}

// One head in double: probabilities of each query over the keys up to the last that it sees.
std::vector<std::vector<double>> Probabilities(const AttentionHead& head) {
  std::vector<std::vector<double>> rows(head.queries);
  for (int64_t t = 0; t < head.queries; ++t) {
    const int64_t end = head.causal ? std::min(t + 1, head.keys) : head.keys;
    const int64_t start = head.starts == nullptr ? 0 : head.starts[t];
    const int64_t begin =
        head.window == 0 ? start : std::clamp<int64_t>(t + 1 - head.window, start, end);
    rows[t].assign(begin, 0.0);
    double largest = -1e300;
    for (int64_t s = begin; s < end; ++s) {
      double score = 0.0;
      for (int64_t c = 0; c < head.size; ++c) {
        score += static_cast<double>(head.query.row(t)[c]) * head.key.row(s)[c];
      }
      rows[t].push_back(score * head.scale);
      largest = std::max(largest, rows[t].back());
    }
    double sum = 0.0;
    for (int64_t s = begin; s < end; ++s) {
      rows[t][s] = std::exp(rows[t][s] - largest);
      sum += rows[t][s];
    }
    for (int64_t s = begin; s < end; ++s) rows[t][s] /= sum;
  }
  return rows;
}

// Runs both passes on memory that is not numbers, and compares them with formulas in double. `rounding`: the most that an
// operand of the passes' products differs from what it stands for, by its size.
void ExpectFormula(const Kernels& kernels, const AttentionHead& head, int64_t rows,
                   double rounding = 0.0) {
  const int64_t queries = head.queries, size = head.size, stride = head.query.stride;
  SCOPED_TRACE(testing::Message() << queries << " queries, " << head.keys << " keys, size " << size
                                  << (head.causal ? ", causal" : "") << ", window " << head.window);
  std::vector<float> incoming = RandomFloats(queries * size, 1.0, 2);
  if (rounding > 0.0) kernels.round_to_nearest(incoming.size(), incoming.data());
  CpuContext context(/*thread_count=*/1, kernels);
  const auto made = MakeHeadAttention(context, {queries, head.keys, size, head.window},
                                      /*bf16=*/rounding > 0.0);
  ASSERT_TRUE(made.ok()) << made.status();
  const HeadAttention& attention = **made;
  const float poison = std::nanf("");
  std::vector<float> workspace(attention.workspace_bytes() / sizeof(float), poison);
  std::vector<float> output(queries * size, poison), log_sums(queries, poison);
  std::vector<float> gradient(rows * stride, 77.0f);
  attention.Forward(head, output.data(), size, log_sums.data(), /*thread=*/0, workspace.data());
  std::fill(workspace.begin(), workspace.end(), poison);
  attention.Backward(head, incoming.data(), size, log_sums.data(), GradientOf(head, gradient),
                     /*thread=*/0, workspace.data());

  const auto probabilities = Probabilities(head);
  std::vector<double> expected(rows * stride, 0.0), sizes(rows * stride, 0.0);
  const auto add = [&](int64_t at, double term) {
    expected[at] += term;
    sizes[at] += std::abs(term);
  };
  for (int64_t t = 0; t < queries; ++t) {
    const auto visible = static_cast<int64_t>(probabilities[t].size());
    std::vector<double> slopes(visible);  // of the loss by probability
    double mean = 0.0;
    for (int64_t s = 0; s < visible; ++s) {
      for (int64_t c = 0; c < size; ++c) {
        slopes[s] += static_cast<double>(incoming[t * size + c]) * head.value.row(s)[c];
        add(s * stride + 2 * size + c, probabilities[t][s] * incoming[t * size + c]);
      }
      mean += probabilities[t][s] * slopes[s];
    }
    for (int64_t c = 0; c < size; ++c) {
      double mixed = 0.0, mixed_size = 0.0;
      for (int64_t s = 0; s < visible; ++s) {
        const double part = probabilities[t][s] * head.value.row(s)[c];
        mixed += part;
        mixed_size += std::abs(part);
        const double slope = probabilities[t][s] * (slopes[s] - mean) * head.scale;
        add(t * stride + c, slope * head.key.row(s)[c]);
        add(s * stride + size + c, slope * head.query.row(t)[c]);
      }
      ASSERT_NEAR(output[t * size + c], mixed, 2e-6 + rounding * mixed_size);
    }
  }
  for (int64_t i = 0; i < rows * stride; ++i) {
    const int64_t row = i / stride, column = i % stride;
    const bool is_written = column < size ? row < queries : column < 3 * size && row < head.keys;
    ASSERT_NEAR(gradient[i], is_written ? expected[i] : 77.0, 2e-5 + rounding * sizes[i])
        << "row " << row << " column " << column;
  }
}

// Times and sizes around the tiles of every instruction set and the blocks of queries.
TEST_P(CpuKernels, Attention_AndItsGradient_MatchTheFormula) {
  for (const int64_t time : {1, 3, 4, 8, 9, 31, 33, 64, 65, 100, 130}) {
    for (const int64_t size : {1, 5, 16, 24, 40}) {
      const int64_t stride = 3 * size + 7;
      const std::vector<float> rows = RandomFloats(time * stride, 1.0);
      ExpectFormula(kernels(), CausalHead(time, size, stride, 0.4f, rows), time);
    }
  }
}

TEST_P(CpuKernels, Attention_OfOtherKeysThanQueries_MatchesTheFormula) {
  constexpr int64_t kSize = 6, kStride = 3 * kSize + 1, kTimeMax = 131;
  const std::vector<float> rows = RandomFloats(kTimeMax * kStride, 1.0);
  for (const int64_t queries : {1, 4, 9, 64, 70, 131}) {
    for (const int64_t keys : {1, 7, 8, 33, 65, 100}) {
      for (const bool causal : {false, true}) {
        AttentionHead head = CausalHead(queries, kSize, kStride, 0.4f, rows);
        head.keys = keys;
        head.causal = causal;
        ExpectFormula(kernels(), head, kTimeMax);
      }
    }
  }
}

bool AllNan(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isnan(value); });
}
bool AllFinite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

// With operands that bf16 can hold, only what is computed between the products is rounded, by 1 in 256 at most. Times around
// the blocks of 128.
TEST_P(CpuKernels, Attention_InBf16_MatchesTheFormula) {
  if (!CpuContext(1, kernels()).has_bf16_products) GTEST_SKIP() << "no bf16 products here";
  constexpr double kRounding = 1.0 / 256;
  constexpr int64_t kTimeMax = 700;
  for (const int64_t size : {5, 32}) {
    const int64_t stride = 3 * size + 7;
    std::vector<float> rows = RandomFloats(kTimeMax * stride, 1.0);
    kernels().round_to_nearest(rows.size(), rows.data());
    for (const int64_t time : {128, 129, 256, 300, 700}) {
      for (const int64_t window : {0, 100, 256, 257}) {
        AttentionHead head = CausalHead(time, size, stride, 0.4f, rows);
        head.window = window;
        ExpectFormula(kernels(), head, kTimeMax, kRounding);
      }
    }
    const std::pair<int64_t, int64_t> queries_and_keys[] = {{128, 300}, {300, 130}, {200, 200}};
    for (const auto& [queries, keys] : queries_and_keys) {
      AttentionHead head = CausalHead(queries, size, stride, 0.4f, rows);
      head.keys = keys;
      head.causal = false;
      ExpectFormula(kernels(), head, kTimeMax, kRounding);
      head.causal = true;
    }
    AttentionHead late = CausalHead(700, size, stride, 0.4f, rows);
    late.window = 256;
    late.keys = 130;  // the queries from 385 on see nothing
    ExpectFormula(kernels(), late, kTimeMax, kRounding);
    AttentionHead documents = CausalHead(300, size, stride, 0.4f, rows);
    std::vector<int32_t> starts(300);
    for (int t = 0; t < 300; ++t) starts[t] = t < 50 ? 0 : t < 200 ? 50 : 200;
    documents.starts = starts.data();
    ExpectFormula(kernels(), documents, kTimeMax, kRounding);
  }
}

// As where samples have lengths, and heads share keys and values; gradients that nobody wants are not written.
TEST_P(CpuKernels, Attention_InBf16OfFewerKeysThanItIsMadeFor_AddsAndLeavesOut) {
  constexpr int64_t kTime = 300, kKeys = 140, kSize = 8, kStride = 3 * kSize;
  const std::vector<float> rows = RandomFloats(kTime * kStride, 1.0);
  AttentionHead head = CausalHead(kTime, kSize, kStride, 0.4f, rows);
  head.causal = false;
  head.keys = kKeys;
  const std::vector<float> incoming = RandomFloats(kTime * kSize, 1.0, 2);
  CpuContext context(/*thread_count=*/1, kernels());
  const auto gradient_of = [&](int64_t keys_max, float start, bool adds, bool query, bool value) {
    const auto attention =
        MakeHeadAttention(context, {kTime, keys_max, kSize}, context.has_bf16_products).value();
    std::vector<char> workspace(attention->workspace_bytes());
    std::vector<float> output(kTime * kSize), log_sums(kTime), gradient(kTime * kStride, start);
    attention->Forward(head, output.data(), kSize, log_sums.data(), 0, workspace.data());
    AttentionHeadGradient to = GradientOf(head, gradient);
    to.adds_to_keys = adds;
    if (!query) to.query = {};
    if (!value) to.value = {};
    attention->Backward(head, incoming.data(), kSize, log_sums.data(), to, 0, workspace.data());
    return gradient;
  };
  const std::vector<float> plain = gradient_of(kKeys, 0.0f, false, true, true);
  EXPECT_EQ(gradient_of(kTime, 0.0f, false, true, true), plain);
  const std::vector<float> added = gradient_of(kTime, 3.0f, true, true, true);
  const std::vector<float> of_keys = gradient_of(kTime, 3.0f, true, false, false);
  for (int64_t i = 0; i < kTime * kStride; ++i) {
    const bool is_query = i % kStride < kSize;
    const bool is_key = !is_query && i % kStride < 2 * kSize;
    const bool is_there = is_query || i / kStride < kKeys;
    EXPECT_EQ(added[i], is_query ? plain[i] : plain[i] + 3.0f) << i;
    EXPECT_EQ(of_keys[i], is_key && is_there ? plain[i] + 3.0f : 3.0f) << i;
  }
}

TEST_P(CpuKernels, Attention_InBf16_IsTheSameOnEachThread) {
  constexpr int64_t kTime = 200, kSize = 16, kStride = 3 * kSize;
  const std::vector<float> rows = RandomFloats(kTime * kStride, 1.0);
  const AttentionHead head = CausalHead(kTime, kSize, kStride, 0.25f, rows);
  const auto outputs = [&](int threads, int thread) {
    CpuContext context(threads, kernels());
    const auto attention =
        MakeHeadAttention(context, {kTime, kTime, kSize}, context.has_bf16_products).value();
    std::vector<char> workspace(attention->workspace_bytes());
    std::vector<float> output(kTime * kSize), log_sums(kTime), gradient(kTime * kStride);
    attention->Forward(head, output.data(), kSize, log_sums.data(), thread, workspace.data());
    attention->Backward(head, output.data(), kSize, log_sums.data(), GradientOf(head, gradient),
                        thread, workspace.data());
    gradient.insert(gradient.end(), output.begin(), output.end());
    return gradient;
  };
  const std::vector<float> expected = outputs(1, 0);
  EXPECT_EQ(outputs(3, 0), expected);
  EXPECT_EQ(outputs(3, 2), expected);
}

// Windows around the tiles, with queries that see nothing where the keys end early.
TEST_P(CpuKernels, Attention_OfAWindow_MatchesTheFormula) {
  constexpr int64_t kSize = 6, kStride = 3 * kSize + 1, kTimeMax = 131;
  const std::vector<float> rows = RandomFloats(kTimeMax * kStride, 1.0);
  for (const int64_t queries : {1, 9, 70, 131}) {
    for (const int64_t keys : {1, 8, 33, 70, 131}) {
      for (const int64_t window : {1, 2, 7, 8, 17, 64, 65, 200}) {
        AttentionHead head = CausalHead(queries, kSize, kStride, 0.4f, rows);
        head.keys = keys;
        head.window = window;
        ExpectFormula(kernels(), head, kTimeMax);
      }
    }
  }
}

// What is not a number spoils whatever is computed with it, be it times zero.
TEST_P(CpuKernels, Attention_TilesOutsideOfTheWindow_AreNotComputed) {
  constexpr int64_t kTime = 300, kSize = 4, kStride = 3 * kSize, kWindow = 20;
  constexpr int64_t kTile = 32;  // the widest of all instruction sets
  std::vector<float> rows = RandomFloats(kTime * kStride, 1.0);
  std::fill_n(rows.begin() + kSize, 2 * kSize, std::nanf(""));  // the first key and value
  AttentionHead head = CausalHead(kTime, kSize, kStride, 0.4f, rows);
  head.window = kWindow;
  const std::vector<float> incoming = RandomFloats(kTime * kSize, 1.0, 2);
  std::vector<float> workspace(kernels().attention_workspace(kTime, kTime, kSize));
  std::vector<float> output(kTime * kSize), log_sums(kTime), gradient(kTime * kStride);
  kernels().attention(head, output.data(), kSize, log_sums.data(), workspace.data());
  kernels().attention_gradient(head, incoming.data(), kSize, log_sums.data(),
                               GradientOf(head, gradient), workspace.data());
  for (int64_t t = 0; t < kTime; ++t) {
    if (t < kWindow) {
      EXPECT_TRUE(AllNan(&output[t * kSize], kSize)) << t;
    } else if (t >= kWindow + kTile) {
      EXPECT_TRUE(AllFinite(&output[t * kSize], kSize)) << t;
      EXPECT_TRUE(AllFinite(&gradient[t * kStride], kStride)) << t;
    }
  }
}

TEST_P(CpuKernels, AttentionGradient_OfHeadsThatShareKeys_IsAdded) {
  constexpr int64_t kTime = 37, kSize = 5, kStride = 3 * kSize;
  const std::vector<float> rows = RandomFloats(kTime * kStride, 1.0);
  const AttentionHead head = CausalHead(kTime, kSize, kStride, 0.4f, rows);
  const std::vector<float> incoming = RandomFloats(kTime * kSize, 1.0, 2);
  std::vector<float> workspace(kernels().attention_workspace(kTime, kTime, kSize));
  std::vector<float> output(kTime * kSize), log_sums(kTime);
  kernels().attention(head, output.data(), kSize, log_sums.data(), workspace.data());
  std::vector<float> written(kTime * kStride), added(kTime * kStride, 3.0f);
  AttentionHeadGradient to = GradientOf(head, written);
  kernels().attention_gradient(head, incoming.data(), kSize, log_sums.data(), to, workspace.data());
  to = GradientOf(head, added);
  to.adds_to_keys = true;
  kernels().attention_gradient(head, incoming.data(), kSize, log_sums.data(), to, workspace.data());
  for (int64_t i = 0; i < kTime * kStride; ++i) {
    const bool is_query = i % kStride < kSize;
    EXPECT_EQ(added[i], is_query ? written[i] : written[i] + 3.0f) << i;
  }
}

TEST_P(CpuKernels, Attention_ScoresFarApart_NeitherOverflowNorVanish) {
  const int64_t time = 20, size = 4;
  std::vector<float> rows(time * 3 * size, 1.0f);
  for (int64_t t = 0; t < time; ++t) {
    for (int64_t c = 0; c < size; ++c) {
      rows[t * 3 * size + c] = 1e4f;                              // queries
      rows[t * 3 * size + size + c] = t % 2 == 0 ? 1e4f : -1e4f;  // keys
      rows[t * 3 * size + 2 * size + c] = static_cast<float>(t);  // values
    }
  }
  const AttentionHead head = CausalHead(time, size, 3 * size, 1.0f, rows);
  std::vector<float> workspace(kernels().attention_workspace(time, time, size));
  std::vector<float> output(time * size), log_sums(time);
  kernels().attention(head, output.data(), size, log_sums.data(), workspace.data());
  for (int64_t t = 0; t < time; ++t) {
    // All weight on the even time steps so far, equally.
    const auto half = t / 2;
    EXPECT_NEAR(output[t * size], static_cast<double>(half), 1e-4) << t;
  }
}

TEST_P(CpuKernels, CrossEntropy_AndItsGradient_MatchTheFormula) {
  for (const int64_t vocabulary : kWidths) {
    const int64_t rows = 3;
    const std::vector<float> logits = RandomFloats(rows * vocabulary, 3.0);
    const std::vector<int32_t> targets = {0, static_cast<int32_t>(vocabulary - 1),
                                          static_cast<int32_t>(vocabulary / 2)};
    std::vector<float> log_sums(rows), gradient(rows * vocabulary);
    const CrossEntropyRows all = {rows, vocabulary, logits.data(), targets.data(), log_sums.data()};
    const double loss = kernels().cross_entropy(all);
    kernels().f32.cross_entropy_gradient(all, 0.25f, gradient.data());
    double expected_loss = 0.0;
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0.0;
      for (int64_t v = 0; v < vocabulary; ++v) {
        sum += std::exp(static_cast<double>(logits[r * vocabulary + v]));
      }
      expected_loss += std::log(sum) - logits[r * vocabulary + targets[r]];
      for (int64_t v = 0; v < vocabulary; ++v) {
        const double probability = std::exp(static_cast<double>(logits[r * vocabulary + v])) / sum;
        EXPECT_NEAR(gradient[r * vocabulary + v], 0.25 * (probability - (v == targets[r] ? 1 : 0)),
                    1e-6)
            << "vocabulary " << vocabulary;
      }
    }
    EXPECT_NEAR(loss, expected_loss, 1e-5) << "vocabulary " << vocabulary;
  }
}

// A number that is not one must never come out of a softmax as a small probability: the loss and the
// gradients are where it is noticed.
TEST_P(CpuKernels, Attention_NotANumberInAQuery_StaysOneInItsRowOnly) {
  for (const int64_t time : {1, 5, 20, 70}) {
    const int64_t size = 3, stride = 3 * size;
    std::vector<float> rows = RandomFloats(time * stride, 1.0);
    const int64_t bad = time / 2;
    rows[bad * stride + 1] = std::nanf("");
    const AttentionHead head = CausalHead(time, size, stride, 0.4f, rows);
    const std::vector<float> incoming = RandomFloats(time * size, 1.0, 2);
    std::vector<float> workspace(kernels().attention_workspace(time, time, size));
    std::vector<float> output(time * size), log_sums(time), gradient(time * stride);
    kernels().attention(head, output.data(), size, log_sums.data(), workspace.data());
    kernels().attention_gradient(head, incoming.data(), size, log_sums.data(),
                                 GradientOf(head, gradient), workspace.data());
    for (int64_t t = 0; t < time; ++t) {
      EXPECT_EQ(AllNan(&output[t * size], size), t == bad) << "time " << time << ", row " << t;
      EXPECT_EQ(std::isnan(log_sums[t]), t == bad) << "time " << time << ", row " << t;
      // The bad query has seen the keys and values up to its own time step.
      EXPECT_EQ(AllNan(&gradient[t * stride], size), t == bad) << "time " << time << ", row " << t;
      EXPECT_EQ(AllNan(&gradient[t * stride + 2 * size], size), t <= bad)
          << "time " << time << ", row " << t;
    }
  }
}

TEST_P(CpuKernels, Attention_NotANumberInAKey_ReachesAllRowsThatSeeIt) {
  const int64_t time = 37, size = 5, stride = 3 * size, bad = 20;
  std::vector<float> rows = RandomFloats(time * stride, 1.0);
  rows[bad * stride + size] = std::nanf("");
  const AttentionHead head = CausalHead(time, size, stride, 0.4f, rows);
  std::vector<float> workspace(kernels().attention_workspace(time, time, size));
  std::vector<float> output(time * size), log_sums(time);
  kernels().attention(head, output.data(), size, log_sums.data(), workspace.data());
  for (int64_t t = 0; t < time; ++t) {
    EXPECT_EQ(AllNan(&output[t * size], size), t >= bad) << t;
  }
}

TEST_P(CpuKernels, CrossEntropy_NotANumberInALogit_GivesNoLossAndNoGradient) {
  for (const int64_t vocabulary : kWidths) {
    for (int64_t bad = 0; bad < vocabulary; ++bad) {
      const int64_t rows = 2;
      std::vector<float> logits = RandomFloats(rows * vocabulary, 3.0);
      logits[vocabulary + bad] = std::nanf("");  // in row 1
      const std::vector<int32_t> targets = {0, static_cast<int32_t>((bad + 1) % vocabulary)};
      std::vector<float> log_sums(rows), gradient(rows * vocabulary);
      std::vector<Bf16> half_gradient(rows * vocabulary);
      const CrossEntropyRows all = {rows, vocabulary, logits.data(), targets.data(),
                                    log_sums.data()};
      const double loss = kernels().cross_entropy(all);
      kernels().f32.cross_entropy_gradient(all, 0.25f, gradient.data());
      kernels().bf16.cross_entropy_gradient(all, 0.25f, half_gradient.data());
      EXPECT_TRUE(std::isnan(loss)) << "vocabulary " << vocabulary << ", logit " << bad;
      EXPECT_TRUE(std::isfinite(log_sums[0]));
      EXPECT_TRUE(AllNan(&gradient[vocabulary], vocabulary))
          << "vocabulary " << vocabulary << ", logit " << bad;
      for (int64_t v = 0; v < vocabulary; ++v) {
        EXPECT_TRUE(std::isfinite(gradient[v]));
        EXPECT_GT(half_gradient[vocabulary + v] & 0x7FFF, 0x7F80);  // not a number
      }
    }
  }
}

TEST_P(CpuKernels, LayerNorm_OfAnyWidth_HasMeanZeroAndVarianceOne) {
  for (const int64_t width : kWidths) {
    const int64_t rows = 2;
    std::vector<float> input = RandomFloats(rows * width, 3.0);
    for (float& value : input) {
      value += 100.0f;  // a mean far from zero must not cost precision
    }
    const std::vector<float> gain(width, 1.0f), bias(width, 0.0f);
    std::vector<float> mean(rows), inverse(rows), output(rows * width);
    kernels().f32.layer_norm(
        {rows, width, 1e-5f, input.data(), gain.data(), bias.data(), mean.data(), inverse.data()},
        output.data());
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0.0, squares = 0.0, true_sum = 0.0;
      for (int64_t c = 0; c < width; ++c) {
        sum += output[r * width + c];
        squares += static_cast<double>(output[r * width + c]) * output[r * width + c];
        true_sum += input[r * width + c];
      }
      EXPECT_NEAR(mean[r], true_sum / static_cast<double>(width), 1e-4) << width;
      EXPECT_NEAR(sum / static_cast<double>(width), 0.0, 2e-5) << width;
      if (width > 2) {
        EXPECT_NEAR(squares / static_cast<double>(width), 1.0, 1e-3) << width;
      }
    }
  }
}

TEST_P(CpuKernels, MaskColumnSums_WithoutDropout_CopiesAndSums) {
  for (const int64_t width : kWidths) {
    const int64_t rows = 5;
    const std::vector<float> values = RandomFloats(rows * width, 1.0);
    std::vector<float> copy(rows * width), sums(width, 99.0f);
    kernels().f32.mask_column_sums(rows, width, values.data(), nullptr, copy.data(), sums.data());
    EXPECT_EQ(copy, values);
    for (int64_t c = 0; c < width; ++c) {
      double expected = 0.0;
      for (int64_t r = 0; r < rows; ++r) {
        expected += values[r * width + c];
      }
      EXPECT_NEAR(sums[c], expected, 1e-5) << width;
    }
  }
}

// The mask is defined by base/random.h; every instruction set computes the same one.
TEST_P(CpuKernels, Dropout_Mask_IsPhiloxOfItsPlace) {
  const int64_t width = 150, time = 4, rows = 7;
  DropoutRows dropout;
  dropout.key = 0x123456789ABCDEF;
  dropout.layer = 9;
  dropout.first_sample = (int64_t{1} << 33) + 5;
  dropout.time = time;
  dropout.first_row = 2;
  dropout.drop_below = 0x40000000;
  dropout.scale = 2.0f;
  const std::vector<float> ones(rows * width, 1.0f);
  std::vector<float> masked(rows * width), sums(width);
  kernels().f32.mask_column_sums(rows, width, ones.data(), &dropout, masked.data(), sums.data());
  const int64_t groups = 3;  // of 64 columns
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = dropout.first_row + r;
    const auto sample = static_cast<uint64_t>(dropout.first_sample + row / time);
    for (int64_t c = 0; c < width; ++c) {
      const int64_t group = row % time * groups + c / 64;
      const auto counter = static_cast<uint32_t>(group * 16 + c % 16);
      const uint32_t word =
          Philox(dropout.key, {counter, dropout.layer, static_cast<uint32_t>(sample),
                               static_cast<uint32_t>(sample >> 32)})[c % 64 / 16];
      ASSERT_EQ(masked[r * width + c], word < dropout.drop_below ? 0.0f : 2.0f)
          << "row " << r << ", column " << c;
    }
  }
}

TEST_P(CpuKernels, AdamW_AndSgd_OfAnyCount_TouchNothingBehindTheEnd) {
  for (const int64_t count : kWidths) {
    const std::vector<float> gradients = RandomFloats(count + 4, 1.0, 2);
    std::vector<float> weights = RandomFloats(count + 4, 1.0, 3);
    std::vector<float> mean(count + 4, 0.5f), square(count + 4, 0.5f);
    std::vector<Bf16> mirror(count + 4, 0xABCD);
    const std::vector<float> before = weights;
    float* const state[] = {mean.data(), square.data()};
    kernels().Elementwise<AdamWStep>()({0.9f, 0.99f, 0.1f, 0.01f, 1.0f, 0.1f, 1.0f, 1e-8f}, 1.0f,
                                       count, weights.data(), gradients.data(), state,
                                       weights.data(), mirror.data());
    kernels().Elementwise<SgdStep>()({0.9f, 0.0f, 0.1f, false}, 1.0f, count, weights.data(),
                                     gradients.data(), state, weights.data(), mirror.data());
    for (int64_t i = 0; i < count + 4; ++i) {
      EXPECT_EQ(weights[i] != before[i], i < count) << count << ": " << i;
      EXPECT_EQ(mirror[i] != 0xABCD, i < count) << count << ": " << i;
      EXPECT_EQ(mean[i] != 0.5f, i < count) << count << ": " << i;
    }
  }
}

TEST_P(CpuKernels, SquaredNorm_OfAnyCount_IsExactForSmallIntegers) {
  for (const int64_t count : {1, 7, 16, 33, 63, 64, 65, 100, 200, 259}) {
    std::vector<float> values(count);
    double expected = 0.0;
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(i + 1);
      expected += static_cast<double>(i + 1) * static_cast<double>(i + 1);
    }
    EXPECT_EQ(kernels().squared_norm(count, values.data()), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(AllInstructionSets, CpuKernels, ::testing::ValuesIn(SupportedKernels()),
                         [](const auto& info) { return std::string(info.param->instruction_set); });

}  // namespace
}  // namespace penstock
