#include "services/cli/plan_input.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "job/model_profile.h"
#include "job/topology.h"
#include "planner/pipedream_profile.h"

namespace penstock {
namespace {

// The layers are a chain: each reads the one before.
absl::StatusOr<PlanInput> OfModelProfile(const std::string& path, std::optional<int64_t> samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelProfile profile, ReadModelProfile(path));
  const auto& sizes = profile.shapes(0).sizes();
  const int64_t of_microbatch = samples.value_or(sizes.rbegin()->samples());
  const absl::StatusOr<v1::DeviceTimes> times = DeviceTimesOf(profile, of_microbatch);
  if (!times.ok()) return Annotate(times.status(), absl::StrCat(path, ": --samples"));
  std::vector<LayerNode> nodes;
  std::vector<LayerMemory> memory;
  for (int i = 0; i < profile.layers_size(); ++i) {
    const v1::ProfiledLayer& layer = profile.layers(i);
    const v1::ShapeProfile& shape = ShapeOf(profile, layer);
    const v1::PassTimes& passes = times->layers(i).times();
    // The bytes of an output are in proportion to the samples.
    const v1::SizeProfile& largest = *shape.sizes().rbegin();
    const double share =
        static_cast<double>(of_microbatch) / static_cast<double>(largest.samples());
    nodes.push_back(
        {.id = layer.layer(),
         .description = layer.shape(),
         .forward_s = passes.forward_ms() * 1e-3,
         .backward_s = (passes.backward_input_ms() + passes.backward_weight_ms()) * 1e-3,
         .activation_bytes = static_cast<double>(largest.output_bytes()) * share,
         .parameter_bytes = static_cast<double>(shape.gradient_bytes())});
    memory.push_back(
        {.weight_bytes = static_cast<double>(shape.weight_bytes()),
         .state_bytes = static_cast<double>(shape.gradient_bytes() + shape.optimizer_bytes()),
         .stash_bytes = static_cast<double>(largest.stash_bytes()) * share});
  }
  return PlanInput{.graph = ChainGraph(std::move(nodes)),
                   .memory = std::move(memory),
                   .what = absl::StrCat(path, ", ", profile.layers_size(), " layers, ",
                                        of_microbatch, " samples, ", profile.device())};
}

absl::StatusOr<PlanInput> OfPipeDreamProfile(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                            RealFiles().Read(path, kPipeDreamProfileBytesMax));
  absl::StatusOr<PipeDreamProfile> profile = ParsePipeDreamProfile(text);
  if (!profile.ok()) return Annotate(profile.status(), path);
  LayerGraph graph = WithoutInputsAndUnreadItems(*profile).graph;
  std::string what = absl::StrCat(path, ", ", graph.nodes.size(), " layers");
  return PlanInput{.graph = std::move(graph), .memory = {}, .what = std::move(what)};
}

}  // namespace

absl::StatusOr<PlanInput> ReadPlanInput(const std::string& path, std::optional<int64_t> samples) {
  if (absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml")) {
    return OfModelProfile(path, samples);
  }
  if (samples.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--samples: ", path, " is of minibatches of one size, that of its profiler"));
  }
  return OfPipeDreamProfile(path);
}

Cluster ClusterOf(const v1::Topology& topology) {
  constexpr double kBytesOfGigabit = 1e9 / 8;
  constexpr double kBytesOfGib = 1024.0 * 1024.0 * 1024.0;
  Cluster cluster{.full_duplex = !topology.half_duplex()};
  std::map<std::string, int> host_of;
  for (const v1::TopologyHost& alike : topology.hosts()) {
    for (const std::string& name : HostNamesOf(alike)) {
      const int number = static_cast<int>(cluster.hosts.size());
      host_of[name] = number;
      PlanHost host{.name = name};
      if (alike.has_gigabits()) host.card_bytes_per_second = alike.gigabits() * kBytesOfGigabit;
      if (alike.has_inside_gigabits()) {
        host.inside_bytes_per_second = alike.inside_gigabits() * kBytesOfGigabit;
      }
      cluster.hosts.push_back(std::move(host));
      int on_host = 0;
      for (const v1::TopologyWorkers& workers : alike.workers()) {
        const int count = workers.has_count() ? workers.count() : 1;
        for (int i = 0; i < count; ++i) {
          PlanWorker worker{.name = absl::StrCat(name, "/", on_host++), .host = number};
          if (workers.has_speed()) worker.speed = workers.speed();
          if (workers.has_memory_gib()) worker.memory_bytes = workers.memory_gib() * kBytesOfGib;
          cluster.workers.push_back(std::move(worker));
        }
      }
    }
  }
  for (const v1::TopologyPath& path : topology.paths()) {
    cluster.paths.push_back({.from = host_of.at(path.hosts(0)),
                             .to = host_of.at(path.hosts(1)),
                             .bytes_per_second = path.gigabits() * kBytesOfGigabit});
  }
  return cluster;
}

}  // namespace penstock
