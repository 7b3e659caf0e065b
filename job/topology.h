// Topology: the workers that a plan may use, their memory and speed, and the network between them, as a file.
//
// Plain functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/topology.pb.h"

namespace penstock {

inline constexpr int kTopologyWorkersMax = 4'096;

// Errors: InvalidArgument with the key: no hosts, a name missing or there twice, a count, speed, memory or
// bandwidth that is not positive and finite, a latency below 0 or above ten seconds, no workers or too many of them, hosts without `gigabits` where there
// are several, a path that does not join two of the hosts, or two that join the same.
absl::Status CheckTopology(const v1::Topology& topology);

// `file_name` is for messages. Errors: InvalidArgument with file, line and column: what ReadYamlMessage and
// CheckTopology find.
absl::StatusOr<v1::Topology> ParseTopology(absl::string_view text, const std::string& file_name);
// Errors also: NotFound, PermissionDenied.
absl::StatusOr<v1::Topology> ReadTopology(const std::string& path);

// The names of the hosts that one entry stands for.
std::vector<std::string> HostNamesOf(const v1::TopologyHost& host);

}  // namespace penstock
