// Files of clusters: workers, hosts and the network between them.
#include "job/profile/cluster_spec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/yaml_round_trip.h"

PENSTOCK_FUZZ_TARGET(cluster_spec) {
  using namespace penstock;
  const auto read = ParseClusterSpec(FuzzBytes(data, size).rest(), "file.yaml");
  if (!read.ok()) return 0;
  FuzzAccepted();
  CheckYamlRoundTrip(*read, v1::ClusterSpec());
  PENSTOCK_CHECK(CheckClusterSpec(*read).ok());
  for (const v1::ClusterHost& host : read->hosts()) {
    PENSTOCK_CHECK(HostNamesOf(host).size() <= static_cast<size_t>(kClusterWorkersMax));
  }
  return 0;
}
