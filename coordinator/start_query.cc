#include "coordinator/start_query.h"

namespace penstock {

Fingerprint FingerprintOf(const v1::JobSpec& spec, const ResolvedJob& job) {
  return MakeFingerprint({.chain = job.chain,
                          .optimizer = job.optimizer,
                          .batch = job.batch,
                          .seed = job.seed,
                          .data_sha256 = spec.data().text().sha256()});
}

StartQuery StartQueryOf(const v1::JobSpec& spec, const ResolvedJob& job) {
  return {.root = spec.checkpoint().directory(),
          .resume = spec.checkpoint().resume(),
          .fingerprint = FingerprintOf(spec, job),
          .steps = job.steps};
}

}  // namespace penstock
