#include "job/fingerprint.h"

namespace penstock {

Fingerprint FingerprintOf(const v1::JobSpec& spec, const ResolvedJob& job) {
  const v1::TextSpec& text = spec.data().text();
  return MakeFingerprint({.model = job.model,
                          .optimizer = job.optimizer,
                          .batch = job.batch,
                          .seed = job.seed,
                          .data_sha256 = text.sha256(),
                          .validation_fraction = text.validation_fraction()});
}

}  // namespace penstock
