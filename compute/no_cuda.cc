// Stands in for compute/cuda/ in builds without the CUDA toolkit; chosen in compute/CMakeLists.txt.
#include "absl/status/status.h"
#include "compute/backend.h"

namespace penstock {

std::vector<int> UsableGpus() { return {}; }

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int /*device*/,
                                                         Repeatability /*repeatability*/) {
  return absl::UnavailableError(
      "this build of Penstock computes on the CPU only; use the CPU back-end");
}

}  // namespace penstock
