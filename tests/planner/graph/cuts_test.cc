#include "planner/graph/cuts.h"

#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/graph/antichain_states.h"
#include "planner/graph/cut_programme.h"
#include "planner/graph/cut_states.h"
#include "planner/graph/cuts_between.h"
#include "planner/graph/ideals.h"
#include "planner/graph/narrow_order.h"
#include "planner/graph/slice_bounds.h"
#include "tests/planner/graph/planner_test_support.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

uint32_t SetOf(const CutFamily& family, int cut) {
  uint32_t set = 0;
  if (cut == 0) return set;
  for (const int node : family.NodesBetween(0, cut)) set |= 1u << node;
  return set;
}

TEST(Ideals, RandomGraphs_AreAllCutsWithTheirTrueSizes) {
  RandomStream random(2, 1);
  for (int round = 0; round < 300; ++round) {
    const LayerGraph graph =
        RandomGraph(random, static_cast<int>(1 + random.Below(9)), random.Uniform());
    const SortedGraph sorted = SortGraph(graph);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(sorted, {}));
    EXPECT_TRUE(family.complete());
    std::set<uint32_t> cuts;
    for (int cut = 0; cut < family.size(); ++cut) {
      const uint32_t set = SetOf(family, cut);
      cuts.insert(set);
      EXPECT_DOUBLE_EQ(family.live_bytes(cut), BytesOver(graph, set));
    }
    const std::vector<uint32_t> all = AllCuts(graph);
    EXPECT_EQ(cuts, std::set<uint32_t>(all.begin(), all.end()));
  }
}

TEST(CutFamily, Inside_IsSubsetAndOrderedByWork) {
  RandomStream random(3, 1);
  for (int round = 0; round < 50; ++round) {
    const LayerGraph graph = RandomGraph(random, 8, 0.2);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(SortGraph(graph), {}));
    for (int outer = 1; outer < family.size(); ++outer) {
      EXPECT_LE(family.work_s(outer - 1), family.work_s(outer));
      for (int inner = 0; inner < outer; ++inner) {
        const uint32_t a = SetOf(family, inner);
        const uint32_t b = SetOf(family, outer);
        EXPECT_EQ(family.Inside(inner, outer), (a & ~b) == 0);
        EXPECT_NE(b & ~a, 0u);  // no cut stands before one inside it
      }
    }
  }
}

TEST(CutFamily, SetsOfSeveralWords_KnowTheirSubsets) {
  RandomStream random(4, 1);
  const SortedGraph graph = SortGraph(RandomChain(random, 300));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(graph, {}));
  ASSERT_EQ(family.size(), 301);
  for (int outer = 1; outer < family.size(); ++outer) {
    for (int inner = 0; inner < outer; ++inner) ASSERT_TRUE(family.Inside(inner, outer));
  }
}

TEST(CutFamily, TensorThatSkipsStages_CrossesEveryCutOnTheWayOnce) {
  // a is read by b, c and d: it crosses until d is inside.
  LayerGraph graph = ChainGraph({{.id = "a", .activation_bytes = 100},
                                 {.id = "b", .activation_bytes = 10},
                                 {.id = "c", .activation_bytes = 1},
                                 {.id = "d"}});
  graph.edges.push_back({0, 2});
  graph.edges.push_back({0, 3});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(SortGraph(graph), {}));
  ASSERT_EQ(family.size(), 5);
  EXPECT_EQ(family.live_bytes(1), 100);
  EXPECT_EQ(family.live_bytes(2), 110);
  EXPECT_EQ(family.live_bytes(3), 101);
  EXPECT_EQ(family.live_bytes(4), 0);
}

TEST(Ideals, MoreThanAllowed_AreRefused) {
  LayerGraph graph;
  for (int node = 0; node < 20; ++node) {
    graph.nodes.push_back({.id = "n" + std::to_string(node), .forward_s = 1});
  }
  EXPECT_THAT(EnumerateIdeals(SortGraph(graph), {.ideals_max = 1000}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 1000 cuts")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const CutFamily beam,
      EnumerateIdeals(SortGraph(graph), {.ideals_max = 100, .per_size_max = 4}));
  EXPECT_FALSE(beam.complete());
  EXPECT_EQ(beam.size(), 2 + 19 * 4);
}

// The table of planner.md, section 1.1, counted by PipeDream's own code.
TEST(AntichainStates, PublishedProfiles_AreAsManyAsPipeDreamHas) {
  const struct {
    const char* file;
    int states;
    int ideals;
  } counts[] = {{"alexnet.txt", 22, 23},        {"vgg16.txt", 40, 41},
                {"resnet18.txt", 100, 101},     {"resnet50.txt", 240, 241},
                {"resnet101.txt", 410, 411},    {"resnext50.txt", 240, 241},
                {"resnext101.txt", 410, 411},   {"densenet121.txt", 430, 431},
                {"squeezenet1_0.txt", 99, 100}, {"inception_v3_compressed.txt", 1646, 1647},
                {"gnmt.txt", 99, 562},          {"gnmt_large.txt", 1495, 16886}};
  for (const auto& [file, states, ideals] : counts) {
    SCOPED_TRACE(file);
    const SortedGraph graph = SortGraph(PublishedProfile(file));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, AntichainStates(graph));
    EXPECT_EQ(family.size(), states + 1);  // and the empty cut
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily all, EnumerateIdeals(graph, {}));
    EXPECT_EQ(all.size(), ideals);
  }
}

TEST(AntichainStates, TooManyOrUnreachable_AreRefused) {
  EXPECT_THAT(AntichainStates(SortGraph(PublishedProfile("nasnetamobile.txt")), 2000),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 2000")));
  LayerGraph apart;
  apart.nodes = {{.id = "a"}, {.id = "b"}};
  EXPECT_THAT(AntichainStates(SortGraph(apart)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("never reach")));
}

// How many states a programme over the layers in `order` has, summed over the order.
size_t StatesOver(const SortedGraph& graph, const std::vector<int>& order) {
  WaitingLayers waiting(graph);
  std::set<uint64_t> states = {0};
  size_t sum = 0;
  for (const int position : order) {
    const std::optional<PlacedLayer> layer = waiting.Place(graph, position);
    PENSTOCK_CHECK(layer.has_value());
    std::set<uint64_t> next;
    for (const uint64_t state : states) {
      next.insert(layer->Outside(state));
      if (layer->MayBeInside(state)) next.insert(layer->Inside(state));
    }
    states = std::move(next);
    sum += states.size();
  }
  return sum;
}

TEST(NarrowOrder, RandomGraphs_PlaceProducersBeforeConsumers) {
  RandomStream random(9, 1);
  for (int round = 0; round < 100; ++round) {
    const SortedGraph graph =
        SortGraph(RandomGraph(random, static_cast<int>(1 + random.Below(30)), random.Uniform()));
    const auto order = NarrowOrder(graph, Unlimited());
    ASSERT_TRUE(order.has_value());
    std::vector<bool> is_placed(graph.size());
    for (const int position : *order) {
      for (const int producer : graph.producers[position]) EXPECT_TRUE(is_placed[producer]);
      EXPECT_FALSE(is_placed[position]);
      is_placed[position] = true;
    }
    EXPECT_EQ(order->size(), static_cast<size_t>(graph.size()));
  }
}

TEST(NarrowOrder, NasNets_HaveFewStates) {
  for (const char* name : {"nasnetamobile.txt", "nasnetalarge.txt"}) {
    const SortedGraph graph = SortGraph(PublishedProfile(name));
    const auto order = NarrowOrder(graph, Unlimited());
    ASSERT_TRUE(order.has_value());
    // The order in which the fewest layers wait has 413,000 and 1,012,000.
    EXPECT_LT(StatesOver(graph, *order), 100'000u) << name;
  }
}

TEST(NarrowOrder, TooManyLayersThatWait_HaveNone) {
  LayerGraph fan;
  for (int layer = 0; layer <= 31; ++layer) fan.nodes.push_back({.id = std::to_string(layer)});
  for (int layer = 0; layer < 31; ++layer) fan.edges.push_back({layer, 31});
  EXPECT_FALSE(NarrowOrder(SortGraph(fan), Unlimited()).has_value());
}

TEST(CutProgramme, RandomGraphs_FindTheLeastChargeForEveryWork) {
  RandomStream random(6, 1);
  for (int round = 0; round < 300; ++round) {
    LayerGraph graph = RandomGraph(random, static_cast<int>(2 + random.Below(9)), random.Uniform());
    double work = 0;
    for (LayerNode& node : graph.nodes) {
      node.forward_s = static_cast<double>(random.Below(5));
      node.backward_s = 0;
      work += node.forward_s;
    }
    if (work == 0) continue;
    const SortedGraph sorted = SortGraph(graph);
    CutProgramme programme(sorted, static_cast<int>(work), Unlimited());  // units are exact
    const std::vector<double> nothing(graph.nodes.size());
    const auto live = programme.LeastCharges({nothing, sorted.activation_bytes});
    const auto parameters = programme.LeastCharges({sorted.parameter_bytes, nothing});
    const auto light = programme.LightCuts({nothing, sorted.activation_bytes});
    ASSERT_TRUE(live.has_value() && parameters.has_value() && light.has_value());

    const float none = std::numeric_limits<float>::infinity();
    std::vector<float> least_live(static_cast<size_t>(work) + 1, none);
    std::vector<float> least_parameters = least_live;
    for (const uint32_t cut : AllCuts(graph)) {
      double inside = 0;
      double bytes = 0;
      for (size_t node = 0; node < graph.nodes.size(); ++node) {
        if (((cut >> node) & 1) == 0) continue;
        inside += graph.nodes[node].forward_s;
        bytes += graph.nodes[node].parameter_bytes;
      }
      float& least = least_live[static_cast<size_t>(inside)];
      least = std::min(least, static_cast<float>(BytesOver(graph, cut)));
      float& fewest = least_parameters[static_cast<size_t>(inside)];
      fewest = std::min(fewest, static_cast<float>(bytes));
    }
    ASSERT_EQ(live->size(), least_live.size());
    size_t reached = 0;
    for (size_t unit = 0; unit < least_live.size(); ++unit) {
      EXPECT_EQ((*live)[unit] == none, least_live[unit] == none);
      if (least_live[unit] == none) continue;
      EXPECT_NEAR((*live)[unit], least_live[unit], 1e-4);
      EXPECT_NEAR((*parameters)[unit], least_parameters[unit], 1e-4);
      const double bytes = LiveBytes(sorted, (*light)[reached++]);
      EXPECT_NEAR(bytes, least_live[unit], 1e-4);
    }
    EXPECT_EQ(reached, light->size());
  }
}

TEST(SliceBounds, RandomGraphs_HoldForEveryCut) {
  RandomStream random(7, 1);
  for (int round = 0; round < 100; ++round) {
    const LayerGraph graph =
        RandomGraph(random, static_cast<int>(2 + random.Below(9)), random.Uniform());
    if (TotalWorkS(graph) == 0) continue;
    const SortedGraph sorted = SortGraph(graph);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(sorted, {}));
    const auto bounds = SliceBounds::Of(sorted, Unlimited());
    ASSERT_TRUE(bounds.has_value());
    for (const auto& slices : {bounds->Slices(37, 12), bounds->Halves(bounds->Slices(19, 5))}) {
      for (int cut = 1; cut + 1 < family.size(); ++cut) {
        bool is_held = false;
        for (size_t at = 1; at + 1 < slices.size(); ++at) {
          const CutFamily::Slice& slice = slices[at];
          is_held = is_held || (slice.least_work_s <= family.work_s(cut) * (1 + 1e-12) &&
                                family.work_s(cut) <= slice.most_work_s * (1 + 1e-12) &&
                                slice.least_live_bytes <= family.live_bytes(cut) &&
                                slice.least_parameter_bytes <= family.parameter_bytes(cut) &&
                                slice.most_parameter_bytes >= family.parameter_bytes(cut));
        }
        EXPECT_TRUE(is_held) << "cut " << cut << " with work " << family.work_s(cut);
      }
    }
  }
}

TEST(LightCutsBetween, RandomGraphs_AreTheLightestCutsBetweenTwo) {
  RandomStream random(8, 1);
  for (int round = 0; round < 100; ++round) {
    LayerGraph graph = RandomGraph(random, static_cast<int>(3 + random.Below(8)), random.Uniform());
    for (LayerNode& node : graph.nodes) {
      node.forward_s = static_cast<double>(1 + random.Below(4));
      node.backward_s = 0;
    }
    const SortedGraph sorted = SortGraph(graph);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const CutFamily family, EnumerateIdeals(sorted, {}));
    const int outer = static_cast<int>(1 + random.Below(family.size() - 1));
    int inner = static_cast<int>(random.Below(outer));
    if (!family.Inside(inner, outer)) inner = 0;
    const double work_s = family.StageWorkS(inner, outer);
    const double weight = 2 * random.Uniform() - 1;
    const auto light = LightCutsBetween(sorted, family.set(inner), family.set(outer),
                                        static_cast<int>(work_s), weight, Unlimited());
    ASSERT_TRUE(light.has_value());

    // The least charge by work of the cuts found, and of all.
    const auto charges = [&](const CutFamily& cuts) {
      std::map<double, double> least;
      for (int cut = 0; cut < cuts.size(); ++cut) {
        const double charge = cuts.live_bytes(cut) + weight * cuts.parameter_bytes(cut);
        const auto [entry, is_new] = least.try_emplace(cuts.work_s(cut), charge);
        entry->second = std::min(entry->second, charge);
      }
      return least;
    };
    std::vector<int> between = {0};
    for (int cut = 1; cut + 1 < family.size(); ++cut) {
      const bool is_around = cut == inner || (cut > inner && family.Inside(inner, cut));
      if (is_around && (cut == outer || (cut < outer && family.Inside(cut, outer)))) {
        between.push_back(cut);
      }
    }
    between.push_back(family.size() - 1);
    NodeSets found = *light;
    found.Add(family.set(0));
    found.Add(family.set(family.size() - 1));
    std::vector<double> live_bytes;
    for (size_t cut = 0; cut < found.size(); ++cut) {
      live_bytes.push_back(LiveBytes(sorted, found[cut]));
    }
    const auto expected = charges(family.Subfamily(between));
    const auto actual = charges(CutFamily(sorted, found, live_bytes, /*complete=*/false));
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [work, charge] : expected) {
      ASSERT_TRUE(actual.contains(work)) << work;
      EXPECT_NEAR(actual.at(work), charge, 1e-4) << work;
    }
  }
}

}  // namespace
}  // namespace penstock
