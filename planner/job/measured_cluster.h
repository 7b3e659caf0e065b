// MeasuredCluster: a profile of a cluster, or a description of one, as what planner/ plans for.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "job/resolve.h"
#include "penstock/v1/cluster_spec.pb.h"
#include "penstock/v1/profile.pb.h"
#include "planner/graph/cluster.h"

namespace penstock {

struct MeasuredCluster {
  // Measured on the first kind of device. A worker of another kind has as its speed how much faster that kind does all
  // layers of the model together; the proportions between layers are the first kind's.
  v1::ModelProfile profile;
  Cluster cluster;
};

// A host's NIC is as fast as its fastest link to another host; two hosts whose links are slower than their NICs have a
// path of their own. Inside a host the slowest link counts. Nobody else was on the network then.
// REQUIRES: CheckClusterProfile is OK.
MeasuredCluster ClusterOfProfile(const v1::ClusterProfile& profile);

// Parses what `penstock profile` wrote, of one device (then without workers) or of a cluster. `path` is for messages.
// Errors: those of ParseClusterProfile and ParseModelProfile.
absl::StatusOr<MeasuredCluster> ParseMeasuredCluster(absl::string_view text,
                                                     const std::string& path);

// REQUIRES: CheckClusterSpec is OK.
Cluster ClusterOf(const v1::ClusterSpec& spec);

// Returns the sizes of a microbatch, in samples, to measure for a job whose number of microbatches may be chosen: half
// as many as the job has, as many, and twice as many.
std::vector<int64_t> SizesAround(const ResolvedJob& job);

}  // namespace penstock
