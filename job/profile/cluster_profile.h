// ClusterProfile: what every kind of a cluster's devices takes for every layer of a model, its workers, and the
// links between them, as a file; and what may be asked of a cluster that makes one.
//
// Plain functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/profile.pb.h"

namespace penstock {

// The machine of a worker's address: "alpha" of "alpha:7071".
std::string HostOf(const std::string& address);

// Every worker measures a link to every other.
inline constexpr int kProfileWorkersMax = 64;
inline constexpr int kProfileSizesMax = 16;
inline constexpr int64_t kProfileSamplesMax = int64_t{1} << 20;
// A measurement that goes on for longer looks like a worker that is stuck.
inline constexpr double kProfileSecondsMax = 300.0;

// Errors: InvalidArgument with the key: no sizes, or too many; sizes that do not ascend or are too large; a time
// or a number of workers that is negative or too large.
absl::Status CheckProfileSpec(const v1::ProfileSpec& spec);

// Checks the numbers of a link. Errors: InvalidArgument with the key: a latency or a bandwidth that is not
// finite, a negative latency, no bandwidth.
absl::Status CheckLinkNumbers(const std::string& key, double latency_us, double bytes_per_second);
// Errors: InvalidArgument with the key: a rate that is not finite or not above 0.
absl::Status CheckRate(const std::string& key, double bytes_per_second);

// Errors: InvalidArgument with the key: what CheckModelProfile finds in a device's model; no devices or workers;
// a device, worker or link twice; a device that is of another model or other sizes than the first; a worker
// without host, with a device that is none of `devices`, with a memory that is negative, or with a rate of offloading
// that is neither 0 nor what CheckRate wants; a device that no worker has; a link of a worker that there is not, or to
// itself, or two workers without one; CheckLinkNumbers'.
absl::Status CheckClusterProfile(const v1::ClusterProfile& profile);

// `file_name` is for messages. Errors: InvalidArgument with file, line and column: what ReadYamlMessage and
// CheckClusterProfile find.
absl::StatusOr<v1::ClusterProfile> ParseClusterProfile(absl::string_view text,
                                                       const std::string& file_name);
// Errors also: NotFound, PermissionDenied.
absl::StatusOr<v1::ClusterProfile> ReadClusterProfile(const std::string& path);
// The text of such a file.
std::string PrintClusterProfile(const v1::ClusterProfile& profile);

}  // namespace penstock
