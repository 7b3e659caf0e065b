// Stands in for NCCL in builds without its header.
#include "compute/cuda/groups.h"

namespace penstock::cuda {
namespace {

class NoGroups final : public DeviceGroups {
 public:
  const char* name() const override { return "none"; }
  std::string device() const override { return ""; }
  absl::StatusOr<DeviceGroupId> MakeId() override { return Missing(); }
  absl::StatusOr<std::unique_ptr<DeviceGroup>> Join(const DeviceGroupId&, int, int,
                                                    absl::Time) override {
    return Missing();
  }

 private:
  static absl::Status Missing() {
    return absl::UnavailableError("this build is without NCCL, which groups of GPUs need");
  }
};

}  // namespace

std::unique_ptr<DeviceGroups> MakeGroups(CudaContext&) { return std::make_unique<NoGroups>(); }

}  // namespace penstock::cuda
