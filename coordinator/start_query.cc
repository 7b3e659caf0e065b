#include "coordinator/start_query.h"

namespace penstock {

StartQuery StartQueryOf(const v1::JobSpec& spec, const ResolvedJob& job) {
  return {.root = spec.checkpoint().directory(),
          .resume = spec.checkpoint().resume(),
          .fingerprint = FingerprintOf(spec, job),
          .steps = job.steps};
}

}  // namespace penstock
