// MeasuredCluster: a profile of a cluster as what planner/ plans for.
//
// Pure functions.
#pragma once

#include "penstock/v1/profile.pb.h"
#include "planner/graph/cluster.h"

namespace penstock {

struct MeasuredCluster {
  // Of the first kind of device. Workers of another kind have as their speed how much faster that one does all
  // layers of the model together: what single layers take in proportion is the first kind's.
  v1::ModelProfile profile;
  Cluster cluster;
};

// A host's card is as fast as its fastest link to another host; two hosts whose links are slower than their cards have
// a path of their own. Inside a host counts the slowest link. Nobody else was on the network then.
// REQUIRES: CheckClusterProfile is OK.
MeasuredCluster ClusterOfProfile(const v1::ClusterProfile& profile);

}  // namespace penstock
