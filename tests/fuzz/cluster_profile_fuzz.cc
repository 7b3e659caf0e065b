// Profiles of clusters, as `penstock profile` writes them.
#include "job/profile/cluster_profile.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/yaml_round_trip.h"

PENSTOCK_FUZZ_TARGET(cluster_profile) {
  using namespace penstock;
  const auto read = ParseClusterProfile(FuzzBytes(data, size).rest(), "file.yaml");
  if (!read.ok()) return 0;
  FuzzAccepted();
  CheckYamlRoundTrip(*read, v1::ClusterProfile());
  PENSTOCK_CHECK(CheckClusterProfile(*read).ok());
  PENSTOCK_CHECK(ParseClusterProfile(PrintClusterProfile(*read), "again.yaml").ok());
  return 0;
}
