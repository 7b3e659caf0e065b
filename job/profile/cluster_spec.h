// ClusterSpec: the workers that a plan may use, their memory and speed, and the network between them, as a file.
//
// Plain functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/cluster_spec.pb.h"

namespace penstock {

inline constexpr int kClusterWorkersMax = 4'096;

// Errors: InvalidArgument with the key: no hosts, a name missing or there twice, a count, speed, memory or
// bandwidth that is not positive and finite, a latency below 0 or above ten seconds, no workers or too many of them, hosts without `gigabits` where there
// are several, a path that does not join two of the hosts, or two that join the same.
absl::Status CheckClusterSpec(const v1::ClusterSpec& spec);

// `file_name` is for messages. Errors: InvalidArgument with file, line and column: what ReadYamlMessage and
// CheckClusterSpec find.
absl::StatusOr<v1::ClusterSpec> ParseClusterSpec(absl::string_view text,
                                                 const std::string& file_name);
// Errors also: NotFound, PermissionDenied.
absl::StatusOr<v1::ClusterSpec> ReadClusterSpec(const std::string& path);

// The names of the hosts that one entry stands for.
std::vector<std::string> HostNamesOf(const v1::ClusterHost& host);

}  // namespace penstock
