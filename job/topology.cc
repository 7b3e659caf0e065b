#include "job/topology.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/check_fields.h"
#include "job/yaml_message.h"

namespace penstock {
namespace {

absl::Status CheckPositive(const std::string& key, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return InvalidKey(key, absl::StrCat("is ", value, "; expected a number above 0"));
}

absl::Status CheckLatency(const std::string& key, double us) {
  constexpr double kLatencyUsMax = 1e7;
  if (us >= 0 && us <= kLatencyUsMax) return absl::OkStatus();
  return InvalidKey(key, absl::StrCat("is ", us, "; expected 0 to ", kLatencyUsMax));
}

absl::Status CheckCount(const std::string& key, int64_t count) {
  if (count >= 1 && count <= kTopologyWorkersMax) return absl::OkStatus();
  return InvalidKey(key, absl::StrCat("is ", count, "; expected 1 to ", kTopologyWorkersMax));
}

absl::StatusOr<int64_t> CheckedWorkersOf(const std::string& key, const v1::TopologyHost& host) {
  int64_t workers = 0;
  for (int i = 0; i < host.workers_size(); ++i) {
    const v1::TopologyWorkers& alike = host.workers(i);
    const std::string of_workers = absl::StrCat(key, ".workers[", i, "]");
    const int64_t count = alike.has_count() ? alike.count() : 1;
    PENSTOCK_RETURN_IF_ERROR(CheckCount(of_workers + ".count", count));
    if (alike.has_speed()) {
      PENSTOCK_RETURN_IF_ERROR(CheckPositive(of_workers + ".speed", alike.speed()));
    }
    if (alike.has_memory_gib()) {
      PENSTOCK_RETURN_IF_ERROR(CheckPositive(of_workers + ".memory_gib", alike.memory_gib()));
    }
    workers += count;
  }
  if (workers > 0) return workers;
  return InvalidKey(key + ".workers", "has none; expected one entry at least, such as {count: 4}");
}

absl::Status CheckPath(const std::string& key, const v1::TopologyPath& path,
                       const std::set<std::string>& names,
                       std::set<std::pair<std::string, std::string>>& joined) {
  PENSTOCK_RETURN_IF_ERROR(CheckPositive(key + ".gigabits", path.gigabits()));
  PENSTOCK_RETURN_IF_ERROR(CheckLatency(key + ".latency_us", path.latency_us()));
  if (path.hosts_size() != 2 || path.hosts(0) == path.hosts(1)) {
    return InvalidKey(key + ".hosts", absl::StrCat("is [", absl::StrJoin(path.hosts(), ", "),
                                                   "]; expected the names of two hosts"));
  }
  for (const std::string& name : path.hosts()) {
    if (names.count(name) > 0) continue;
    return InvalidKey(key + ".hosts",
                      absl::StrCat("names ", name, "; the hosts are ", absl::StrJoin(names, ", ")));
  }
  if (joined.emplace(std::minmax(path.hosts(0), path.hosts(1))).second) return absl::OkStatus();
  return InvalidKey(key + ".hosts", absl::StrCat(path.hosts(0), " and ", path.hosts(1),
                                                 " are joined by another path too"));
}

}  // namespace

std::vector<std::string> HostNamesOf(const v1::TopologyHost& host) {
  const int count = host.has_count() ? host.count() : 1;
  if (count == 1) return {host.name()};
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(absl::StrCat(host.name(), "-", i));
  return names;
}

absl::Status CheckTopology(const v1::Topology& topology) {
  if (topology.hosts().empty()) return InvalidKey("hosts", "has none; expected one at least");
  std::set<std::string> names;
  int64_t workers = 0;
  for (int i = 0; i < topology.hosts_size(); ++i) {
    const v1::TopologyHost& host = topology.hosts(i);
    const std::string key = absl::StrCat("hosts[", i, "]");
    if (host.name().empty()) return InvalidKey(key + ".name", "is missing; expected a name");
    const int64_t count = host.has_count() ? host.count() : 1;
    PENSTOCK_RETURN_IF_ERROR(CheckCount(key + ".count", count));
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t on_each, CheckedWorkersOf(key, host));
    workers += count * on_each;
    if (workers > kTopologyWorkersMax) {
      return InvalidKey("hosts", absl::StrCat("have ", workers, " workers or more; expected ",
                                              kTopologyWorkersMax, " at most"));
    }
    for (const std::string& name : HostNamesOf(host)) {
      if (!names.insert(name).second) {
        return InvalidKey(key + ".name", absl::StrCat(name, " is there twice"));
      }
    }
    PENSTOCK_RETURN_IF_ERROR(CheckLatency(key + ".latency_us", host.latency_us()));
    PENSTOCK_RETURN_IF_ERROR(CheckLatency(key + ".inside_latency_us", host.inside_latency_us()));
    if (host.has_inside_gigabits()) {
      PENSTOCK_RETURN_IF_ERROR(CheckPositive(key + ".inside_gigabits", host.inside_gigabits()));
    }
    if (host.has_gigabits()) {
      PENSTOCK_RETURN_IF_ERROR(CheckPositive(key + ".gigabits", host.gigabits()));
    } else if (topology.hosts_size() > 1 || count > 1) {
      return InvalidKey(key + ".gigabits",
                        "is missing; expected the bandwidth of the host's network card");
    }
  }
  std::set<std::pair<std::string, std::string>> joined;
  for (int i = 0; i < topology.paths_size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckPath(absl::StrCat("paths[", i, "]"), topology.paths(i), names, joined));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Topology> ParseTopology(absl::string_view text, const std::string& file_name) {
  v1::Topology topology;
  YamlPositions positions;
  PENSTOCK_RETURN_IF_ERROR(ReadYamlMessage(text, file_name, topology, positions));
  if (const absl::Status valid = CheckTopology(topology); !valid.ok()) {
    return WithPlace(valid, file_name, positions);
  }
  return topology;
}

absl::StatusOr<v1::Topology> ReadTopology(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path));
  return ParseTopology(text, path);
}

}  // namespace penstock
