#include "tests/planner/graph/planner_test_support.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/files.h"

namespace penstock {
namespace {

LayerNode RandomLayer(RandomStream& random, int index) {
  LayerNode layer{.id = "node" + std::to_string(index), .description = "Layer"};
  // Often whole and small: ties are where a search goes wrong.
  const bool is_round = random.Below(2) == 0;
  const auto amount = [&] {
    return is_round ? static_cast<double>(random.Below(4)) : 3 * random.Uniform();
  };
  layer.forward_s = amount();
  layer.backward_s = amount();
  layer.activation_bytes = amount();
  layer.parameter_bytes = random.Below(3) == 0 ? 0 : amount();
  return layer;
}

}  // namespace

LayerGraph RandomGraph(RandomStream& random, int layers, double edge_probability) {
  LayerGraph graph;
  for (int index = 0; index < layers; ++index) graph.nodes.push_back(RandomLayer(random, index));
  for (int to = 1; to < layers; ++to) {
    for (int from = 0; from < to; ++from) {
      if (random.Uniform() < edge_probability) graph.edges.push_back({from, to});
    }
  }
  return graph;
}

LayerGraph RandomChain(RandomStream& random, int layers) {
  std::vector<LayerNode> nodes;
  nodes.reserve(layers);
  for (int index = 0; index < layers; ++index) nodes.push_back(RandomLayer(random, index));
  return ChainGraph(std::move(nodes));
}

LayerGraph PublishedProfile(const std::string& file) {
  const absl::StatusOr<std::string> text =
      RealFiles().Read(JoinPath(PENSTOCK_SOURCE_DIR, "tests/planner/graph/profiles/" + file),
                       kPipeDreamProfileBytesMax);
  PENSTOCK_CHECK(text.ok());
  const absl::StatusOr<PipeDreamProfile> profile = ParsePipeDreamProfile(*text);
  PENSTOCK_CHECK(profile.ok());
  return WithoutInputsAndUnreadItems(*profile).graph;
}

std::vector<uint32_t> AllCuts(const LayerGraph& graph) {
  std::vector<uint32_t> cuts;
  for (uint32_t set = 0; set < (1u << graph.nodes.size()); ++set) {
    const bool is_closed =
        std::all_of(graph.edges.begin(), graph.edges.end(), [&](const LayerEdge& edge) {
          return ((set >> edge.to) & 1) == 0 || ((set >> edge.from) & 1) != 0;
        });
    if (is_closed) cuts.push_back(set);
  }
  return cuts;
}

double BytesOver(const LayerGraph& graph, uint32_t cut) {
  double bytes = 0;
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    const bool crosses =
        ((cut >> node) & 1) != 0 &&
        std::any_of(graph.edges.begin(), graph.edges.end(), [&](const LayerEdge& edge) {
          return edge.from == static_cast<int>(node) && ((cut >> edge.to) & 1) == 0;
        });
    if (crosses) bytes += graph.nodes[node].activation_bytes;
  }
  return bytes;
}

double BrutePeriod(const StageCostModel& model, const std::vector<BruteStage>& stages) {
  const double bandwidth = model.bytes_per_second;
  double period_s = 0;
  for (size_t index = 0; index < stages.size(); ++index) {
    const BruteStage& stage = stages[index];
    const double m = stage.replicas;
    double stage_s = 0;
    switch (model.sync) {
      case SyncRule::kSum4:
        stage_s = (stage.work_s + 4 * (m - 1) * stage.parameter_bytes / (bandwidth * m)) / m;
        break;
      case SyncRule::kMax4:
        stage_s = std::max(stage.work_s, 4 * (m - 1) * stage.parameter_bytes / (bandwidth * m)) / m;
        break;
      case SyncRule::kMax2:
        stage_s = std::max(stage.work_s, 2 * (m - 1) * stage.parameter_bytes / bandwidth) / m;
        break;
    }
    period_s = std::max(period_s, stage_s);
    if (index + 1 == stages.size()) break;
    const double whole_s = 2 * stage.output_bytes / bandwidth;
    const double next = stages[index + 1].replicas;
    switch (model.link) {
      case LinkRule::kFree:
        break;
      case LinkRule::kWhole:
        period_s = std::max(period_s, whole_s);
        break;
      case LinkRule::kOwnReplicas:
        period_s = std::max(period_s, whole_s / next);
        if (index > 0) period_s = std::max(period_s, whole_s / m);
        break;
      case LinkRule::kSmallerSide:
        period_s = std::max(period_s, whole_s / std::min(m, next));
        break;
    }
  }
  return period_s;
}

double BruteForce(const LayerGraph& graph, const StageCostModel& model, int workers) {
  const std::vector<uint32_t> cuts = AllCuts(graph);
  const uint32_t all = cuts.back();
  double best_s = std::numeric_limits<double>::infinity();
  std::vector<BruteStage> stages;
  const std::function<void(uint32_t, int)> extend = [&](uint32_t cut, int left) {
    if (cut == all) {
      if (left == 0 || !model.uses_all_workers) {
        best_s = std::min(best_s, BrutePeriod(model, stages));
      }
      return;
    }
    for (const uint32_t next : cuts) {
      if (next == cut || (cut & ~next) != 0) continue;
      BruteStage stage{.output_bytes = BytesOver(graph, next)};
      for (size_t node = 0; node < graph.nodes.size(); ++node) {
        if ((((next & ~cut) >> node) & 1) == 0) continue;
        stage.work_s += graph.nodes[node].work_s();
        stage.parameter_bytes += graph.nodes[node].parameter_bytes;
      }
      for (int replicas = 1; replicas <= (model.replicates ? left : std::min(left, 1));
           ++replicas) {
        stage.replicas = replicas;
        stages.push_back(stage);
        extend(next, left - replicas);
        stages.pop_back();
      }
    }
  };
  extend(0, workers);
  return best_s;
}

}  // namespace penstock
