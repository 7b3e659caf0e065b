// PipeDream's graph.txt: what is read is a graph without a cycle, and is printed and read as the same.
#include <string>

#include "planner/graph/pipedream_profile.h"
#include "tests/fuzz/fuzz_target.h"

PENSTOCK_FUZZ_TARGET(pipedream_profile) {
  using namespace penstock;
  const absl::StatusOr<PipeDreamProfile> profile =
      ParsePipeDreamProfile(FuzzBytes(data, size).rest());
  if (!profile.ok()) return 0;
  FuzzAccepted();
  PENSTOCK_CHECK(TopologicalOrder(profile->graph).ok());
  PENSTOCK_CHECK(profile->stage_of.size() == profile->graph.nodes.size());
  // Times are printed in microseconds, so that the first text may differ.
  const std::string printed = FormatPipeDreamProfile(*profile);
  const absl::StatusOr<PipeDreamProfile> again = ParsePipeDreamProfile(printed);
  PENSTOCK_CHECK(again.ok() && FormatPipeDreamProfile(*again) == printed);
  const PipeDreamProfile planned = WithoutInputsAndUnreadItems(*profile);
  PENSTOCK_CHECK(planned.graph.nodes.size() <= profile->graph.nodes.size());
  return 0;
}
