// Job files: any text is read or refused; what is read is written and read as the same, whether it is a job that can run
// or not; and a job that can run is one again after it was written with its defaults.
#include <string>

#include "job/defaults.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/yaml_round_trip.h"

PENSTOCK_FUZZ_TARGET(job_yaml) {
  using namespace penstock;
  const absl::string_view text = FuzzBytes(data, size).rest();
  v1::JobSpec spec;
  YamlPositions positions;
  if (!ReadYamlMessage(text, "job.yaml", spec, positions).ok()) {
    PENSTOCK_CHECK(!ParseJobYaml(text, "job.yaml").ok());
    return 0;
  }
  CheckYamlRoundTrip(spec, v1::JobSpec());
  const absl::StatusOr<v1::JobSpec> job = ParseJobYaml(text, "job.yaml");
  if (!job.ok()) return 0;
  FuzzAccepted();
  PENSTOCK_CHECK(ResolveJob(*job).ok());
  const std::string written = WriteYamlMessage(*job, "");
  if (static_cast<int64_t>(written.size()) <= kYamlBytesMax) {
    PENSTOCK_CHECK(ParseJobYaml(written, "again.yaml").ok());
  }
  return 0;
}
