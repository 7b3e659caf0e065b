#include "planner/job/measured_cluster.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "job/profile/cluster_profile.h"
#include "job/profile/cluster_spec.h"
#include "job/profile/model_profile.h"

namespace penstock {
namespace {

// A path is kept if its links are slower by more than a measurement varies.
constexpr double kSlowerThanNics = 0.9;

// Returns the time of all layers together, with the largest microbatches that were measured.
double ModelMs(const v1::ModelProfile& profile) {
  const absl::StatusOr<v1::DeviceTimes> times =
      DeviceTimesOf(profile, profile.shapes(0).sizes().rbegin()->samples());
  PENSTOCK_CHECK(times.ok());
  double ms = 0;
  for (const v1::LayerTimes& layer : times->layers()) {
    ms += layer.times().forward_ms() + layer.times().backward_input_ms() +
          layer.times().backward_weight_ms();
  }
  return ms;
}

// The worst that was measured between two hosts, or inside one.
struct Way {
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double latency_s = 0;
};

class Measured {
 public:
  explicit Measured(const v1::ClusterProfile& profile) : profile_(profile) {}

  MeasuredCluster Run() {
    measured_.profile = profile_.devices(0).model();
    AddWorkers();
    AddLinks();
    return std::move(measured_);
  }

 private:
  void AddWorkers() {
    std::map<std::string, double> speeds;
    const double first_ms = ModelMs(profile_.devices(0).model());
    for (const v1::DeviceProfile& device : profile_.devices()) {
      const double ms = ModelMs(device.model());
      speeds[device.device()] = ms > 0 && first_ms > 0 ? first_ms / ms : 1.0;
    }
    Cluster& cluster = measured_.cluster;
    std::map<std::string, int> hosts;
    for (const v1::ProfiledWorker& worker : profile_.workers()) {
      const auto [host, is_new] =
          hosts.emplace(worker.host(), static_cast<int>(cluster.hosts.size()));
      if (is_new) cluster.hosts.push_back({.name = worker.host()});
      PlanWorker planned{
          .name = worker.worker(), .host = host->second, .speed = speeds.at(worker.device())};
      if (worker.memory_bytes() > 0) {
        planned.memory_bytes = static_cast<double>(worker.memory_bytes());
      }
      planned.offload_bytes_per_second = worker.offload_bytes_per_second();
      host_of_[worker.worker()] = host->second;
      cluster.workers.push_back(std::move(planned));
    }
  }

  void AddLinks() {
    std::map<std::pair<int, int>, Way> ways;
    for (const v1::ProfiledLink& link : profile_.links()) {
      const int from = host_of_.at(link.from());
      const int to = host_of_.at(link.to());
      Way& way = ways[std::minmax(from, to)];
      way.bytes_per_second = std::min(way.bytes_per_second, link.bytes_per_second());
      way.latency_s = std::max(way.latency_s, link.latency_us() * 1e-6);
    }
    std::vector<PlanHost>& hosts = measured_.cluster.hosts;
    std::vector<double> nic(hosts.size());
    for (const auto& [pair, way] : ways) {
      if (pair.first == pair.second) {
        hosts[pair.first].inside_bytes_per_second = way.bytes_per_second;
        hosts[pair.first].inside_latency_s = way.latency_s;
        continue;
      }
      for (const int host : {pair.first, pair.second}) {
        PlanHost& end = hosts[host];
        end.nic_latency_s =
            nic[host] > 0 ? std::min(end.nic_latency_s, way.latency_s) : way.latency_s;
        nic[host] = std::max(nic[host], way.bytes_per_second);
        end.nic_bytes_per_second = nic[host];
      }
    }
    for (const auto& [pair, way] : ways) {
      if (pair.first == pair.second) continue;
      const PlanHost& one = hosts[pair.first];
      const PlanHost& two = hosts[pair.second];
      const double nics = std::min(one.nic_bytes_per_second, two.nic_bytes_per_second);
      const bool is_slow =
          way.bytes_per_second < kSlowerThanNics * nics ||
          kSlowerThanNics * way.latency_s > std::max(one.nic_latency_s, two.nic_latency_s);
      if (!is_slow) continue;
      measured_.cluster.paths.push_back({.from = pair.first,
                                         .to = pair.second,
                                         .bytes_per_second = way.bytes_per_second,
                                         .latency_s = way.latency_s});
    }
  }

  const v1::ClusterProfile& profile_;
  MeasuredCluster measured_;
  std::map<std::string, int> host_of_;  // by worker
};

}  // namespace

MeasuredCluster ClusterOfProfile(const v1::ClusterProfile& profile) {
  return Measured(profile).Run();
}

absl::StatusOr<MeasuredCluster> ParseMeasuredCluster(absl::string_view text,
                                                     const std::string& path) {
  if (absl::StartsWith(text, "devices:") || absl::StrContains(text, "\ndevices:")) {
    PENSTOCK_ASSIGN_OR_RETURN(const v1::ClusterProfile profile, ParseClusterProfile(text, path));
    return ClusterOfProfile(profile);
  }
  MeasuredCluster measured;
  PENSTOCK_ASSIGN_OR_RETURN(measured.profile, ParseModelProfile(text, path));
  return measured;
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
                    .nic_latency_s = alike.latency_us() * 1e-6,
                    .inside_latency_s = alike.inside_latency_us() * 1e-6};
      if (alike.has_gigabits()) host.nic_bytes_per_second = alike.gigabits() * kBytesOfGigabit;
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
          if (workers.has_offload_gigabits()) {
            worker.offload_bytes_per_second = workers.offload_gigabits() * kBytesOfGigabit;
          }
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

std::vector<int64_t> SizesAround(const ResolvedJob& job) {
  const int64_t samples = job.microbatch_samples;
  std::vector<int64_t> sizes;
  if (samples >= 2) sizes.push_back(samples / 2);
  sizes.push_back(samples);
  if (samples < job.batch) sizes.push_back(std::min(2 * samples, job.batch));
  return sizes;
}

}  // namespace penstock
