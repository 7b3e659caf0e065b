// What is live at each cut of a graph with skips.
#include "model/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/families/gpt.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constinit const Op kAnyOp = {.name = "any"};

// A graph of which only shapes and readers count, each node in a layer of its own.
class Sketch {
 public:
  int AddPort(std::vector<int64_t> dims) {
    graph_.ports.push_back({"port", {DType::kF32, std::move(dims)}});
    return graph_.values() - 1;
  }
  int Add(std::vector<int> inputs, std::vector<int64_t> dims, bool needs_gradient = true) {
    Node node;
    node.op = &kAnyOp;
    node.inputs = std::move(inputs);
    node.output = {DType::kF32, std::move(dims)};
    node.needs_gradient = needs_gradient;
    graph_.layers.push_back({.first_node = static_cast<int>(graph_.nodes.size()), .node_count = 1});
    graph_.nodes.push_back(std::move(node));
    return graph_.values() - 1;
  }
  // The last node goes into the layer before it.
  void JoinLastLayers() {
    graph_.layers.pop_back();
    ++graph_.layers.back().node_count;
  }
  const ModelGraph& graph() const { return graph_; }

 private:
  ModelGraph graph_;
};

std::vector<int> ValuesOf(const Bundle& bundle) {
  std::vector<int> values;
  for (const Bundle::Part& part : bundle.parts) values.push_back(part.value);
  return values;
}
std::vector<int> ActivationsBefore(const Sketch& sketch, int layer) {
  return ValuesOf(ActivationsAt(sketch.graph(), layer, 1));
}
std::vector<int> GradientsBefore(const Sketch& sketch, int layer) {
  return ValuesOf(GradientsAt(sketch.graph(), layer, 1));
}

TEST(Bundle, OfAChain_IsTheValueBeforeTheCut) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const ModelGraph gpt,
      BuildGpt({.layers = 2, .width = 16, .heads = 4, .context = 8, .vocabulary = 11}));
  for (int layer = 1; layer < gpt.size(); ++layer) {
    const Bundle bundle = ActivationsAt(gpt, layer, 3);
    EXPECT_EQ(bundle.parts,
              std::vector<Bundle::Part>({{gpt.ValueOf(gpt.layers[layer].first_node - 1), 0}}));
    EXPECT_EQ(bundle.elements, 3 * 8 * 16);
    EXPECT_EQ(GradientsAt(gpt, layer, 3), bundle);
  }
}

TEST(Bundle, AtTheEndsOfTheModel_IsEmpty) {
  Sketch sketch;
  const int port = sketch.AddPort({4});
  sketch.Add({port}, {4});
  sketch.Add({1}, {});
  for (const int layer : {0, 2}) {
    EXPECT_TRUE(ActivationsAt(sketch.graph(), layer, 1).empty());
    EXPECT_TRUE(GradientsAt(sketch.graph(), layer, 1).empty());
  }
}

TEST(Bundle, SkipOverSeveralLayers_IsLiveUpToItsLastReader) {
  Sketch sketch;
  const int port = sketch.AddPort({4});
  const int skip = sketch.Add({port}, {4});
  const int a = sketch.Add({skip}, {4});
  const int b = sketch.Add({a}, {4});
  const int c = sketch.Add({b}, {4});
  const int sum = sketch.Add({c, skip}, {4});
  sketch.Add({sum}, {});
  EXPECT_THAT(ActivationsBefore(sketch, 1), ElementsAre(skip));
  EXPECT_THAT(ActivationsBefore(sketch, 2), ElementsAre(skip, a));
  EXPECT_THAT(ActivationsBefore(sketch, 3), ElementsAre(skip, b));
  EXPECT_THAT(ActivationsBefore(sketch, 4), ElementsAre(skip, c));
  EXPECT_THAT(ActivationsBefore(sketch, 5), ElementsAre(sum));
  for (int layer = 0; layer <= 6; ++layer) {
    EXPECT_EQ(GradientsBefore(sketch, layer), ActivationsBefore(sketch, layer));
  }
}

TEST(Bundle, Ports_AreInNone) {
  Sketch sketch;
  const int early = sketch.AddPort({4});
  const int late = sketch.AddPort({4});
  const int a = sketch.Add({early}, {4});
  const int b = sketch.Add({a, early}, {4});
  sketch.Add({b, late, early}, {});
  EXPECT_THAT(ActivationsBefore(sketch, 1), ElementsAre(a));
  EXPECT_THAT(ActivationsBefore(sketch, 2), ElementsAre(b));
}

TEST(Bundle, ValueReadTwiceBehindTheCut_IsThereOnce) {
  Sketch sketch;
  const int port = sketch.AddPort({4});
  const int a = sketch.Add({port}, {4});
  const int b = sketch.Add({a, a}, {4});
  sketch.Add({a, b, a}, {});
  EXPECT_THAT(ActivationsBefore(sketch, 1), ElementsAre(a));
  EXPECT_THAT(ActivationsBefore(sketch, 2), ElementsAre(a, b));
}

TEST(Bundle, ValueOfTheInsideOfALayer_CrossesOnlyIfItIsReadBehindIt) {
  Sketch sketch;
  const int port = sketch.AddPort({4});
  const int inside = sketch.Add({port}, {4});
  const int end = sketch.Add({inside}, {4});
  sketch.JoinLastLayers();
  const int next = sketch.Add({end}, {4});
  sketch.Add({next}, {});
  EXPECT_THAT(ActivationsBefore(sketch, 1), ElementsAre(end));
  EXPECT_THAT(ActivationsBefore(sketch, 2), ElementsAre(next));
}

TEST(Bundle, ValueThatNeedsNoGradient_CrossesForwardOnly) {
  Sketch sketch;
  const int port = sketch.AddPort({4});
  const int pixels = sketch.Add({port}, {4}, /*needs_gradient=*/false);
  const int a = sketch.Add({pixels}, {4});
  const int b = sketch.Add({a, pixels}, {4});
  sketch.Add({b}, {});
  EXPECT_THAT(ActivationsBefore(sketch, 1), ElementsAre(pixels));
  EXPECT_THAT(GradientsBefore(sketch, 1), IsEmpty());
  EXPECT_THAT(ActivationsBefore(sketch, 2), ElementsAre(pixels, a));
  EXPECT_THAT(GradientsBefore(sketch, 2), ElementsAre(a));
}

// Views into a bundle are aligned as tensors of their own.
TEST(Bundle, Parts_StartAtMultiplesOf16Elements) {
  Sketch sketch;
  const int port = sketch.AddPort({4});
  const int a = sketch.Add({port}, {3, 2});
  const int b = sketch.Add({a}, {16});
  const int c = sketch.Add({b}, {5});
  sketch.Add({a, b, c}, {});
  const Bundle bundle = ActivationsAt(sketch.graph(), 3, 3);
  EXPECT_EQ(bundle.parts, std::vector<Bundle::Part>({{a, 0}, {b, 32}, {c, 80}}));
  EXPECT_EQ(bundle.elements, 80 + 3 * 5);
}

}  // namespace
}  // namespace penstock
