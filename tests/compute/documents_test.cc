// Several documents in a row train as each does in a row of its own.
#include "model/documents.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/stage.h"
#include "model/families/llama.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kTokenCount = 23;

struct Trained {
  double loss = 0.0;
  std::map<std::string, std::vector<double>> gradients;
};

ModelGraph Model(int64_t context, int64_t window) {
  return *BuildLlama({.layers = 2,
                      .width = 16,
                      .heads = 4,
                      .key_value_heads = 2,
                      .hidden = 24,
                      .context = context,
                      .vocabulary = kTokenCount,
                      .window = window});
}

// The loss of a row and its gradients. `ports`: tokens, targets and maybe positions.
Trained Train(const ModelGraph& model, const std::vector<std::vector<int32_t>>& ports) {
  const auto backend = *MakeCpuBackend(2);
  StageOptions options;
  options.layers = {0, model.size()};
  options.samples = 1;
  options.seed = 3;
  const auto stage = *Stage::Create(*backend, model, options);
  stage->InitializeWeights();
  std::vector<Tensor> tensors;
  for (const int port : stage->ports()) {
    tensors.push_back(*stage->PortToDevice(
        port, {reinterpret_cast<const std::byte*>(ports[port].data()), ports[port].size() * 4}));
  }
  const absl::StatusOr<Tensor> loss = stage->Forward(MicrobatchId(0), 0, 0, Tensor(), tensors);
  EXPECT_THAT(loss, IsOk());
  Trained trained = {.loss = *stage->ReadLoss(*loss)};
  EXPECT_THAT(stage->BackwardInput(MicrobatchId(0), 0, Tensor(), 1.0f), IsOk());
  EXPECT_THAT(stage->BackwardWeight(MicrobatchId(0)), IsOk());
  for (int layer = 0; layer < model.size(); ++layer) {
    for (const NamedArray& array : stage->LayerGradients(layer)) {
      trained.gradients[array.name].assign(array.values.begin(), array.values.end());
    }
  }
  return trained;
}

std::vector<int32_t> RandomTokens(int64_t count) {
  RandomStream random(8, 1);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.Below(kTokenCount));
  return tokens;
}

// Documents of these lengths in one row, against rows of their own.
void ExpectEqualToRowsOfTheirOwn(const std::vector<int64_t>& lengths, int64_t window) {
  int64_t context = 0;
  for (const int64_t length : lengths) context += length;
  const std::vector<int32_t> tokens = RandomTokens(context);
  const std::vector<int32_t> targets(tokens.rbegin(), tokens.rend());
  std::vector<int32_t> positions;
  Trained apart;
  for (const int64_t length : lengths) {
    const auto first = static_cast<int64_t>(positions.size());
    const auto part = [&](const std::vector<int32_t>& all) {
      return std::vector<int32_t>(all.begin() + first, all.begin() + first + length);
    };
    const Trained one = Train(Model(length, window), {part(tokens), part(targets)});
    const double share = static_cast<double>(length) / static_cast<double>(context);
    apart.loss += share * one.loss;
    for (const auto& [name, values] : one.gradients) {
      std::vector<double>& sum = apart.gradients[name];
      sum.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) sum[i] += share * values[i];
    }
    for (int64_t t = 0; t < length; ++t) positions.push_back(static_cast<int32_t>(t));
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, SeparateDocuments(Model(context, window)));
  const Trained packed = Train(model, {tokens, targets, positions});
  EXPECT_NEAR(packed.loss, apart.loss, 1e-6 * apart.loss);
  ASSERT_EQ(packed.gradients.size(), apart.gradients.size());
  for (const auto& [name, values] : packed.gradients) {
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(values[i] - apart.gradients[name][i], 2);
      size += values[i] * values[i];
    }
    EXPECT_LT(std::sqrt(difference / size), 1e-5) << name;
  }
  // And not what they are as one document, which is little with the first weights.
  const Trained joined = Train(Model(context, window), {tokens, targets});
  EXPECT_GT(std::abs(joined.loss - packed.loss), 1e-5 * packed.loss);
}

TEST(Documents, InOneRow_TrainAsInRowsOfTheirOwn) {
  ExpectEqualToRowsOfTheirOwn({3, 5, 1, 9}, /*window=*/0);
}

TEST(Documents, OverSeveralBlocksOfAttention_TrainAsInRowsOfTheirOwn) {
  ExpectEqualToRowsOfTheirOwn({50, 7, 100, 1, 64, 30}, /*window=*/0);
}

TEST(Documents, WithAWindow_TrainAsInRowsOfTheirOwn) {
  ExpectEqualToRowsOfTheirOwn({50, 7, 100, 20}, /*window=*/6);
}

}  // namespace
}  // namespace penstock
