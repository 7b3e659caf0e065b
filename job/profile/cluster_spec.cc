#include "job/profile/cluster_spec.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/yaml/yaml_message.h"

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
  if (count >= 1 && count <= kClusterWorkersMax) return absl::OkStatus();
  return InvalidKey(key, absl::StrCat("is ", count, "; expected 1 to ", kClusterWorkersMax));
}

absl::StatusOr<int64_t> CheckedWorkersOf(const std::string& key, const v1::ClusterHost& host) {
  int64_t workers = 0;
  for (int i = 0; i < host.workers_size(); ++i) {
    const v1::ClusterWorkers& alike = host.workers(i);
    const std::string of_workers = absl::StrCat(key, ".workers[", i, "]");
    const int64_t count = alike.has_count() ? alike.count() : 1;
    PENSTOCK_RETURN_IF_ERROR(CheckCount(of_workers + ".count", count));
    if (alike.has_speed()) {
      PENSTOCK_RETURN_IF_ERROR(CheckPositive(of_workers + ".speed", alike.speed()));
    }
    if (alike.has_memory_gib()) {
      PENSTOCK_RETURN_IF_ERROR(CheckPositive(of_workers + ".memory_gib", alike.memory_gib()));
    }
    if (alike.has_offload_gigabits()) {
      PENSTOCK_RETURN_IF_ERROR(
          CheckPositive(of_workers + ".offload_gigabits", alike.offload_gigabits()));
    }
    workers += count;
  }
  if (workers > 0) return workers;
  return InvalidKey(key + ".workers", "has none; expected one entry at least, such as {count: 4}");
}

absl::Status CheckPath(const std::string& key, const v1::ClusterPath& path,
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

std::vector<std::string> HostNamesOf(const v1::ClusterHost& host) {
  const int count = host.has_count() ? host.count() : 1;
  if (count == 1) return {host.name()};
  std::vector<std::string> names;
  names.reserve(count);
  for (int i = 0; i < count; ++i) names.push_back(absl::StrCat(host.name(), "-", i));
  return names;
}

absl::Status CheckClusterSpec(const v1::ClusterSpec& spec) {
  if (spec.hosts().empty()) return InvalidKey("hosts", "has none; expected one at least");
  std::set<std::string> names;
  int64_t workers = 0;
  for (int i = 0; i < spec.hosts_size(); ++i) {
    const v1::ClusterHost& host = spec.hosts(i);
    const std::string key = absl::StrCat("hosts[", i, "]");
    if (host.name().empty()) return InvalidKey(key + ".name", "is missing; expected a name");
    const int64_t count = host.has_count() ? host.count() : 1;
    PENSTOCK_RETURN_IF_ERROR(CheckCount(key + ".count", count));
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t on_each, CheckedWorkersOf(key, host));
    workers += count * on_each;
    if (workers > kClusterWorkersMax) {
      return InvalidKey("hosts", absl::StrCat("have ", workers, " workers or more; expected ",
                                              kClusterWorkersMax, " at most"));
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
    } else if (spec.hosts_size() > 1 || count > 1) {
      return InvalidKey(key + ".gigabits", "is missing; expected the bandwidth of the host's NIC");
    }
  }
  std::set<std::pair<std::string, std::string>> joined;
  for (int i = 0; i < spec.paths_size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckPath(absl::StrCat("paths[", i, "]"), spec.paths(i), names, joined));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ClusterSpec> ParseClusterSpec(absl::string_view text,
                                                 const std::string& file_name) {
  v1::ClusterSpec spec;
  YamlPositions positions;
  PENSTOCK_RETURN_IF_ERROR(ReadYamlMessage(text, file_name, spec, positions));
  if (const absl::Status valid = CheckClusterSpec(spec); !valid.ok()) {
    return WithPlace(valid, file_name, positions);
  }
  return spec;
}

absl::StatusOr<v1::ClusterSpec> ReadClusterSpec(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path));
  return ParseClusterSpec(text, path);
}

}  // namespace penstock
