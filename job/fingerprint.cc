#include "job/fingerprint.h"

#include "base/check.h"
#include "job/data/data_kind.h"
#include "job/model_graph.h"

namespace penstock {

Fingerprint FingerprintOf(const v1::JobSpec& spec, const ResolvedJob& job) {
  // As it was described: how it is computed may change from version to version.
  const absl::StatusOr<ModelGraph> model = BuildModel(spec);
  PENSTOCK_CHECK(model.ok());  // the job was resolved from it
  return MakeFingerprint({.model = *model,
                          .optimizer = job.optimizer,
                          .batch = job.batch,
                          .seed = job.seed,
                          .pretrained = IdentityOfPretrained(spec.model()),
                          .data = DataKindOf(spec.data()).fingerprint(spec.data())});
}

}  // namespace penstock
