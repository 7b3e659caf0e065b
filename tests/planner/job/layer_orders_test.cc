// Orders of layers against all orders there are, and profiles as graphs against the bundles of models.
#include "planner/job/layer_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compute/tensor.h"
#include "job/open_job.h"
#include "job/profile/model_profile.h"
#include "job/resolve.h"
#include "job/run/message_bytes.h"
#include "model/bundle.h"
#include "model/graph_builder.h"
#include "model/layer_order.h"
#include "planner/job/plan_job.h"
#include "tests/planner/job/planning_input.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kBytesPerSecond = 1000.0;

// Every node but the first reads one or two before it; the last reads all that nobody else does.
ProfiledGraph RandomGraph(int layers, std::mt19937& random) {
  ProfiledGraph profiled = {.layers = layers};
  std::vector<bool> is_read(layers, false);
  for (int layer = 0; layer < layers; ++layer) {
    profiled.graph.nodes.push_back({.id = absl::StrCat("l", layer),
                                    .forward_s = 1.0 + random() % 5,
                                    .activation_bytes = 100.0 * (1 + random() % 40)});
    profiled.memory.emplace_back();
    for (int from = 0; from < layer; ++from) {
      const bool reads = from + 1 == layer ? random() % 3 == 0 : random() % 4 == 0;
      const bool reads_rest = layer + 1 == layers && !is_read[from];
      if (!reads && !reads_rest) continue;
      profiled.graph.edges.push_back({from, layer});
      is_read[from] = true;
    }
  }
  return profiled;
}

// Written out again: the slowest stage or link of the best way to cut `order` into at most `stages` stages.
double PeriodInOrder(const LayerGraph& graph, const std::vector<int>& order, int stages) {
  const int layers = static_cast<int>(order.size());
  const auto crossing_s = [&](int cut) {
    double bytes = 0;
    for (int at = 0; at < cut; ++at) {
      bool crosses = false;
      for (const LayerEdge& edge : graph.edges) {
        const auto reader = std::find(order.begin(), order.end(), edge.to) - order.begin();
        crosses = crosses || (edge.from == order[at] && reader >= cut);
      }
      if (crosses) bytes += graph.nodes[order[at]].activation_bytes;
    }
    return 2 * bytes / kBytesPerSecond;
  };
  const std::function<double(int, int)> best = [&](int first, int left) {
    double work_s = 0;
    for (int at = first; at < layers; ++at) work_s += graph.nodes[order[at]].work_s();
    double period_s = work_s;
    work_s = 0;
    for (int end = first + 1; end < layers && left > 1; ++end) {
      work_s += graph.nodes[order[end - 1]].work_s();
      period_s = std::min(period_s, std::max({work_s, crossing_s(end), best(end, left - 1)}));
    }
    return period_s;
  };
  return best(0, stages);
}

double BestOfAllOrders(const LayerGraph& graph, int stages) {
  std::vector<int> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  double best_s = kInfinity;
  do {
    const bool is_topological =
        std::all_of(graph.edges.begin(), graph.edges.end(), [&](const LayerEdge& edge) {
          return std::find(order.begin(), order.end(), edge.from) <
                 std::find(order.begin(), order.end(), edge.to);
        });
    if (is_topological) best_s = std::min(best_s, PeriodInOrder(graph, order, stages));
  } while (std::next_permutation(order.begin(), order.end()));
  return best_s;
}

TEST(BestLayerOrder, OfSmallGraphs_IsTheBestOfAllOrders) {
  std::mt19937 random(11);
  int reordered = 0;
  for (int graph = 0; graph < 60; ++graph) {
    const int layers = 3 + static_cast<int>(random() % 4);
    const int stages = 2 + static_cast<int>(random() % 3);
    const ProfiledGraph profiled = RandomGraph(layers, random);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> names,
                                  BestLayerOrder(profiled, stages, kBytesPerSecond, Unlimited()));
    std::vector<int> order(layers);
    std::iota(order.begin(), order.end(), 0);
    const double described_s = PeriodInOrder(profiled.graph, order, stages);
    for (size_t at = 0; at < names.size(); ++at) order[at] = std::stoi(names[at].substr(1));
    const double best_s = BestOfAllOrders(profiled.graph, stages);
    const double chosen_s = PeriodInOrder(profiled.graph, order, stages);
    EXPECT_NEAR(chosen_s, best_s, 1e-3 * best_s) << "graph " << graph << " on " << stages;
    if (names.empty()) continue;
    ++reordered;
    EXPECT_LT(chosen_s, described_s);
  }
  EXPECT_GE(reordered, 10);
}

TEST(BestLayerOrder, OfAChain_IsItsOwn) {
  ProfiledGraph chain = {.layers = 3};
  for (const char* id : {"a", "b", "c"}) {
    chain.graph.nodes.push_back({.id = id, .forward_s = 1, .activation_bytes = 1});
  }
  chain.graph.edges = {{0, 1}, {1, 2}, {0, 2}};
  chain.memory.resize(3);
  EXPECT_TRUE(IsChain(chain));
  EXPECT_THAT(BestLayerOrder(chain, 2, kBytesPerSecond, Unlimited()), IsOkAndHolds(IsEmpty()));
  chain.graph.edges = {{0, 2}, {1, 2}};
  EXPECT_FALSE(IsChain(chain));
}

// A layer hands two values on, one of them past the next layer; a third value is read by two layers.
ModelGraph Skips() {
  GraphBuilder builder("layers");
  builder.AddPort({"x", {DType::kF32, {16}}});
  builder.AddPort({"wanted", {DType::kF32, {16}}});
  const auto linear = [&](const std::string& name, const std::string& of, int64_t outputs) {
    Attributes attributes;
    attributes.Set("outputs", outputs);
    builder.Add(
        {.name = name, .op = "linear", .attributes = std::move(attributes), .inputs = {of}});
  };
  builder.BeginLayer("both");
  linear("wide", "x", 48);
  linear("narrow", "x", 16);
  builder.BeginLayer("middle");
  linear("middle", "narrow", 32);
  builder.BeginLayer("other");
  linear("other", "narrow", 16);
  builder.BeginLayer("back");
  linear("back", "middle", 16);
  builder.BeginLayer("join");
  linear("thin", "wide", 16);
  builder.Add({.name = "sum", .op = "add", .inputs = {"thin", "back", "other"}});
  builder.BeginLayer("loss");
  builder.Add({.op = "mse", .inputs = {"sum", "wanted"}});
  absl::StatusOr<ModelGraph> model = std::move(builder).Build();
  EXPECT_THAT(model, IsOk());
  return model.value_or(ModelGraph());
}

v1::ModelProfile ProfileOfModel(const ModelGraph& model, Precision precision) {
  v1::ModelProfile profile;
  SetLayers(model, precision, profile);
  for (const v1::ProfiledLayer& layer : profile.layers()) {
    const auto known =
        std::find_if(profile.shapes().begin(), profile.shapes().end(),
                     [&](const v1::ShapeProfile& shape) { return shape.shape() == layer.shape(); });
    if (known != profile.shapes().end()) continue;
    v1::ShapeProfile& shape = *profile.add_shapes();
    shape.set_shape(layer.shape());
    shape.add_sizes()->set_samples(4);
  }
  return profile;
}

TEST(GraphOfProfile, CutsInAnyOrder_CarryTheBundles) {
  const ModelGraph model = Skips();
  std::mt19937 random(5);
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    const v1::ModelProfile profile = ProfileOfModel(model, precision);
    ASSERT_THAT(CheckModelProfile(profile), IsOk());
    ASSERT_EQ(profile.layers(0).values_size(), 2);
    EXPECT_THAT(profile.layers(0).values(0).readers(), ElementsAre("middle", "other"));
    EXPECT_THAT(profile.layers(0).values(1).readers(), ElementsAre("join"));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ProfiledGraph profiled, GraphOfProfile(profile, 4));
    ASSERT_EQ(profiled.layers, model.size());
    ASSERT_THAT(CheckLayerGraph(profiled.graph), IsOk());
    EXPECT_EQ(profiled.memory.size(), profiled.graph.nodes.size());
    for (const std::vector<std::string>& names :
         {std::vector<std::string>{"both", "middle", "other", "back", "join", "loss"},
          {"both", "other", "middle", "back", "join", "loss"},
          {"both", "middle", "back", "other", "join", "loss"}}) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph ordered, InLayerOrder(model, names));
      // The values of the first layer stand right behind it.
      std::vector<int> order;
      for (const LayerSpec& layer : ordered.layers) {
        order.push_back(layer.number);
        if (layer.number > 0) continue;
        for (int node = profiled.layers; node < static_cast<int>(profiled.graph.nodes.size());
             ++node) {
          order.push_back(node);
        }
      }
      const LayerGraph chain = ChainInOrder(profiled.graph, order);
      const int values = static_cast<int>(order.size()) - model.size();
      for (int cut = 1; cut < model.size(); ++cut) {
        EXPECT_EQ(chain.nodes[cut - 1 + values].activation_bytes,
                  ActivationsAt(ordered, cut, 4).elements * SizeOf(CrossingType(precision)))
            << "before " << names[cut];
      }
    }
  }
}

// Two towers whose layers take turns: between any two of them both towers' wide values cross, unless one tower comes
// first as a whole.
constexpr char kTowersJob[] = R"(name: towers
model:
  layers:
    - input: {left: {f32: [8]}, right: {f32: [8]}, wanted: {f32: [2]}}
    - linear: {of: left, outputs: 512, name: left_1}
    - linear: {of: right, outputs: 512, name: right_1}
    - linear: {of: left_1, outputs: 512, name: left_2}
    - linear: {of: right_1, outputs: 512, name: right_2}
    - linear: {of: left_2, outputs: 2, name: left_3}
    - linear: {of: right_2, outputs: 2, name: right_3}
    - add: {of: [left_3, right_3], name: sum}
    - mse: {of: [sum, wanted]}
data: {synthetic: {}}
training:
  steps: 10
  batch: 32
  microbatches: 8
  optimizer: {adamw: {learning_rate: 1.0e-3}}
)";

TEST(PlanJob, WhereAnotherOrderHasCheaperCuts_ChoosesAndNamesIt) {
  PlanningInput input = InputOf(kTowersJob, UniformCluster(2, 1, 1e6, kInfinity));
  const PlanJobOptions options = {.methods = {"1f1b"}, .stages = {2}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobPlan plan, PlanJob(input, options, Unlimited()));
  ASSERT_TRUE(plan.fastest.has_value());
  const JudgedCandidate& fastest = plan.candidates[*plan.fastest];
  EXPECT_THAT(NameOf(fastest.candidate), testing::HasSubstr("reordered"));
  ASSERT_THAT(fastest.candidate.layer_order, Not(IsEmpty()));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(DraftOf(fastest.spec)));
  EXPECT_EQ(LayerOrderOf(job.model), fastest.candidate.layer_order);
  // The end of one tower is all that crosses, in the place of two wide values.
  EXPECT_EQ(ActivationBytesAt(job, fastest.layers.front().count),
            job.microbatch_samples * 2 * SizeOf(DType::kF32));
  const auto in_order = std::find_if(plan.candidates.begin(), plan.candidates.end(),
                                     [](const JudgedCandidate& judged) {
                                       return judged.runs() && judged.candidate.layer_order.empty();
                                     });
  ASSERT_NE(in_order, plan.candidates.end());
  EXPECT_LT(fastest.step_s, 0.8 * in_order->step_s);
  EXPECT_LT(fastest.sent_bytes.front(), 0.1 * in_order->sent_bytes.front());
}

TEST(PlanJob, AJobThatSaysItsOrder_KeepsIt) {
  PlanningInput input = InputOf(kTowersJob, UniformCluster(2, 1, 1e6, kInfinity));
  // The sum and the loss, which have no weights, belong to the layer before them.
  const std::vector<std::string> order = {"right_1", "left_1", "right_2",
                                          "left_2",  "left_3", "right_3"};
  input.spec.mutable_pipeline()->mutable_layer_order()->Assign(order.begin(), order.end());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JobPlan plan,
      PlanJob(input, {.methods = {"1f1b", "gpipe"}, .stages = {2}}, Unlimited()));
  ASSERT_TRUE(plan.fastest.has_value());
  for (const JudgedCandidate& judged : plan.candidates) {
    EXPECT_THAT(judged.candidate.layer_order, IsEmpty());
    EXPECT_THAT(judged.spec.pipeline().layer_order(), testing::ElementsAreArray(order));
  }
}

}  // namespace
}  // namespace penstock
