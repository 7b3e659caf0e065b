#include "services/cli/plan_input.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "job/profile/cluster_spec.h"
#include "job/profile/model_profile.h"
#include "planner/graph/pipedream_profile.h"
#include "planner/job/profiled_graph.h"

namespace penstock {
namespace {

absl::StatusOr<PlanInput> OfModelProfile(const std::string& path, std::optional<int64_t> samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelProfile profile, ReadModelProfile(path));
  const auto& sizes = profile.shapes(0).sizes();
  const int64_t of_microbatch = samples.value_or(sizes.rbegin()->samples());
  absl::StatusOr<ProfiledGraph> graph = GraphOfProfile(profile, of_microbatch);
  if (!graph.ok()) return Annotate(graph.status(), absl::StrCat(path, ": --samples"));
  return PlanInput{.graph = std::move(graph->graph),
                   .memory = std::move(graph->memory),
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

Cluster ClusterOf(const v1::ClusterSpec& spec) {
  constexpr double kBytesOfGigabit = 1e9 / 8;
  constexpr double kBytesOfGib = 1024.0 * 1024.0 * 1024.0;
  Cluster cluster{.full_duplex = !spec.half_duplex()};
  std::map<std::string, int> host_of;
  for (const v1::ClusterHost& alike : spec.hosts()) {
    for (const std::string& name : HostNamesOf(alike)) {
      const int number = static_cast<int>(cluster.hosts.size());
      host_of[name] = number;
      PlanHost host{.name = name,
                    .card_latency_s = alike.latency_us() * 1e-6,
                    .inside_latency_s = alike.inside_latency_us() * 1e-6};
      if (alike.has_gigabits()) host.card_bytes_per_second = alike.gigabits() * kBytesOfGigabit;
      if (alike.has_inside_gigabits()) {
        host.inside_bytes_per_second = alike.inside_gigabits() * kBytesOfGigabit;
      }
      cluster.hosts.push_back(std::move(host));
      int on_host = 0;
      for (const v1::ClusterWorkers& workers : alike.workers()) {
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
  for (const v1::ClusterPath& path : spec.paths()) {
    cluster.paths.push_back({.from = host_of.at(path.hosts(0)),
                             .to = host_of.at(path.hosts(1)),
                             .bytes_per_second = path.gigabits() * kBytesOfGigabit,
                             .latency_s = path.latency_us() * 1e-6});
  }
  return cluster;
}

}  // namespace penstock
