#include "job/fingerprint.h"

#include "job/data/data_kind.h"

namespace penstock {

Fingerprint FingerprintOf(const v1::JobSpec& spec, const ResolvedJob& job) {
  return MakeFingerprint({.model = job.model,
                          .optimizer = job.optimizer,
                          .batch = job.batch,
                          .seed = job.seed,
                          .data = DataKindOf(spec.data()).fingerprint(spec.data())});
}

}  // namespace penstock
