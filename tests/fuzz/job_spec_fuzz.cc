// Jobs as a client submits them: messages with whatever numbers, unknown words and kinds of model that no file could have.
// What passes validation can be resolved, cut and written as a file.
#include <string>

#include "job/defaults.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/yaml_round_trip.h"

PENSTOCK_FUZZ_TARGET(job_spec) {
  using namespace penstock;
  v1::JobSpec spec;
  if (!spec.ParseFromArray(data, static_cast<int>(size))) return 0;
  FillDefaults(spec);
  const absl::Status valid = ValidateJob(spec);
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  PENSTOCK_CHECK(valid.ok() == job.ok());
  if (!valid.ok()) return 0;
  FuzzAccepted();
  PENSTOCK_CHECK(job->microbatches >= 1 && job->batch % job->microbatches == 0);
  for (const int64_t stages : {1, 2, 3}) {
    if (!CheckStages(*job, stages).ok()) continue;
    PENSTOCK_CHECK(CheckTopology(TopologyOf(*job, stages)).ok());
  }
  CheckYamlRoundTrip(spec, v1::JobSpec());
  return 0;
}
