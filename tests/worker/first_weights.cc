#include "tests/worker/first_weights.h"

#include <utility>

#include "base/status.h"
#include "compute/backend.h"
#include "job/resolve.h"
#include "worker/pretrained.h"

namespace penstock {

absl::StatusOr<std::map<std::string, NamedArray>> LoadAllFirstWeights(const v1::JobSpec& spec,
                                                                      MemoryFiles& files) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  PENSTOCK_ASSIGN_OR_RETURN(const auto backend, MakeCpuBackend(1));
  const LayerRange all = {0, job.model.size()};
  PENSTOCK_ASSIGN_OR_RETURN(const auto stage, Stage::Create(*backend, job.model,
                                                            {.layers = all,
                                                             .samples = 1,
                                                             .step_samples = 1,
                                                             .optimizer = job.optimizer,
                                                             .seed = job.seed}));
  PENSTOCK_RETURN_IF_ERROR(LoadFirstWeights(
      {.files = files, .root = "", .model = spec.model(), .job = job}, all,
      [] { return absl::OkStatus(); }, *stage));
  std::map<std::string, NamedArray> loaded;
  for (int layer = 0; layer < job.model.size(); ++layer) {
    for (NamedArray& array : stage->LayerWeights(layer)) loaded[array.name] = std::move(array);
  }
  return loaded;
}

absl::StatusOr<std::vector<std::string>> DigestsOfPretrained(const v1::JobSpec& spec,
                                                             MemoryFiles& files) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  return DigestPretrained({.files = files, .root = "", .model = spec.model(), .job = job},
                          [] { return false; });
}

}  // namespace penstock
