// Lengths of GNMT's sources: an encoder that stops at the longest one gives the bits of one that reads the padding.
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "compute/stage.h"
#include "model/families/sequences.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr int64_t kPaddedTime = 7;

ModelGraph PaddedModel() {
  absl::StatusOr<ModelGraph> model = BuildGnmt({.layers = 8,
                                                .hidden = 20,
                                                .vocabulary = 17,
                                                .source_time = kPaddedTime,
                                                .target_time = 5,
                                                .dropout = 0.2});
  EXPECT_THAT(model, IsOk());
  return *std::move(model);
}

// The same without lengths, but where these are needed: in the layer that also reads in reverse, and in the attention.
ModelGraph ReadingPadding(ModelGraph model, int& changed) {
  changed = 0;
  for (Node& node : model.nodes) {
    if (node.op != *FindOp("lstm") || node.attributes.flag("bidirectional")) continue;
    if (node.inputs.size() > 1) ++changed;
    node.inputs.resize(1);
  }
  return model;
}

// Bits of the loss, and of all gradients.
std::vector<uint32_t> TrainedBits(const ModelGraph& model, Precision precision,
                                  const std::vector<int32_t>& lengths) {
  const auto backend = *MakeCpuBackend(2);
  const auto samples = static_cast<int64_t>(lengths.size());
  StageOptions options;
  options.layers = {0, model.size()};
  options.samples = samples;
  options.precision = precision;
  options.seed = 3;
  const auto stage = *Stage::Create(*backend, model, options);
  stage->InitializeWeights();
  std::vector<Tensor> ports;
  for (const int port : stage->ports()) {
    const Port& spec = model.ports[port];
    std::vector<int32_t> values(samples * spec.type.elements());
    RandomStream random(4, port);
    for (int32_t& value : values) value = static_cast<int32_t>(random.Below(spec.ids));
    if (spec.name == "source_lengths") values = lengths;
    ports.push_back(*stage->PortToDevice(port, {reinterpret_cast<const std::byte*>(values.data()),
                                                values.size() * sizeof(int32_t)}));
  }
  const absl::StatusOr<Tensor> loss = stage->Forward(MicrobatchId(0), 0, 0, Tensor(), ports);
  EXPECT_THAT(loss, IsOk());
  std::vector<uint32_t> bits = {
      std::bit_cast<uint32_t>(static_cast<float>(*stage->ReadLoss(*loss)))};
  EXPECT_THAT(stage->BackwardInput(MicrobatchId(0), 0, Tensor(), 1.0f), IsOk());
  EXPECT_THAT(stage->BackwardWeight(MicrobatchId(0)), IsOk());
  for (int layer = 0; layer < model.size(); ++layer) {
    for (const NamedArray& array : stage->LayerGradients(layer)) {
      for (const float value : array.values) bits.push_back(std::bit_cast<uint32_t>(value));
    }
  }
  return bits;
}

TEST(Padding, OfGnmtsSources_ChangesNoBit) {
  const ModelGraph model = PaddedModel();
  int changed = 0;
  const ModelGraph reading_padding = ReadingPadding(model, changed);
  EXPECT_EQ(changed, 3);
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    for (const std::vector<int32_t>& lengths :
         {std::vector<int32_t>{3, 5, 2, 5}, {1, 0, 1, 1}, {0, 0, 0, 0}, {7, 7, 1, 6}}) {
      SCOPED_TRACE(testing::PrintToString(lengths));
      EXPECT_EQ(TrainedBits(model, precision, lengths),
                TrainedBits(reading_padding, precision, lengths));
    }
  }
}

}  // namespace
}  // namespace penstock
