// Groups of GPUs by NCCL.
//
// A communicator is made non-blocking, so that a thread that waits for the others can stop at a deadline and
// abort what hangs. NCCL gives all members the same bits. It promises no order of the sum, but its software
// algorithms, chosen from the sizes, the machine and the settings alone, repeat theirs; reductions in NVLink
// switches do not, so where results must repeat they have to be off (two members have one order anyway).
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/deadline.h"
#include "base/status.h"
#include "compute/cuda/error.h"
#include "compute/cuda/groups.h"
#include "compute/cuda/nccl_library.h"

namespace penstock::cuda {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(DeviceGroupId));

constexpr std::chrono::microseconds kNap{50};
// For the other members to take what this one has left for them.
constexpr absl::Duration kFinalizeTimeout = absl::Seconds(10);
// For a call to be accepted; members need not meet for that.
constexpr absl::Duration kCallTimeout = absl::Minutes(1);

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(const NcclLibrary& nccl, CudaContext& cuda) : nccl_(nccl), cuda_(cuda) {}
  ~NcclGroup() override {
    if (comm_ == nullptr) return;
    (void)cudaSetDevice(cuda_.device());
    if (healthy_ && nccl_.finalize(comm_) != ncclInvalidUsage &&
        Settle("leaving a group", absl::Now() + kFinalizeTimeout).ok()) {
      (void)nccl_.destroy(comm_);
    } else {
      (void)nccl_.abort(comm_);
    }
  }

  absl::Status Join(const DeviceGroupId& id, int rank, int size, absl::Time deadline) {
    ncclUniqueId unique;
    std::memcpy(unique.internal, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const std::string what = absl::StrCat("joining a group of ", size, " GPUs as number ", rank);
    PENSTOCK_RETURN_IF_ERROR(Accepted(nccl_.init(&comm_, size, unique, rank, &config), what));
    PENSTOCK_RETURN_IF_ERROR(Settle(what, deadline));
    healthy_ = true;
    return absl::OkStatus();
  }

  absl::Status AllReduceSum(float* data, int64_t count) override {
    constexpr char kWhat[] = "adding up over a group of GPUs";
    healthy_ = false;  // until it has been accepted
    PENSTOCK_RETURN_IF_ERROR(Accepted(nccl_.all_reduce(data, data, static_cast<size_t>(count),
                                                       ncclFloat32, ncclSum, comm_, cuda_.stream()),
                                      kWhat));
    PENSTOCK_RETURN_IF_ERROR(Settle(kWhat, absl::Now() + kCallTimeout));
    healthy_ = true;
    return absl::OkStatus();
  }

 private:
  absl::Status Accepted(ncclResult_t result, absl::string_view what) const {
    if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
    const std::string message = absl::StrCat(what, ": ", nccl_.error_string(result), ": ",
                                             comm_ == nullptr ? "" : nccl_.last_error(comm_));
    return result == ncclRemoteError ? absl::UnavailableError(message)
                                     : absl::InternalError(message);
  }

  // Waits until NCCL is done with the call before.
  absl::Status Settle(absl::string_view what, absl::Time deadline) const {
    const auto until = Monotonic(deadline);
    for (;;) {
      ncclResult_t state = ncclSuccess;
      PENSTOCK_RETURN_IF_ERROR(Accepted(nccl_.get_async_error(comm_, &state), what));
      if (state != ncclInProgress) return Accepted(state, what);
      if (CondVar::Clock::now() > until) {
        return absl::DeadlineExceededError(
            absl::StrCat(what, ": the other members did not come in time"));
      }
      std::this_thread::sleep_for(kNap);
    }
  }

  const NcclLibrary& nccl_;
  CudaContext& cuda_;
  ncclComm_t comm_ = nullptr;
  bool healthy_ = false;
};

class NcclGroups final : public DeviceGroups {
 public:
  explicit NcclGroups(CudaContext& cuda) : cuda_(cuda) {}

  const char* name() const override { return "nccl"; }
  std::string device() const override {
    const char* uuid = cuda_.properties().uuid.bytes;
    return absl::BytesToHexString(absl::string_view(uuid, sizeof(cudaUUID_t)));
  }

  absl::StatusOr<DeviceGroupId> MakeId() override {
    PENSTOCK_ASSIGN_OR_RETURN(const NcclLibrary* nccl, LoadNccl());
    ncclUniqueId unique;
    if (const ncclResult_t result = nccl->get_unique_id(&unique); result != ncclSuccess) {
      return absl::UnavailableError(
          absl::StrCat("making the ID of a group of GPUs: ", nccl->error_string(result)));
    }
    DeviceGroupId id;
    std::memcpy(id.data(), unique.internal, id.size());
    return id;
  }

  absl::StatusOr<std::unique_ptr<DeviceGroup>> Join(const DeviceGroupId& id, int rank, int size,
                                                    absl::Time deadline) override {
    if (size < 1 || rank < 0 || rank >= size) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", rank, " of a group of ", size, " GPUs"));
    }
    if (cuda_.repeatability() == Repeatability::kBitwise && size > 2) {
      PENSTOCK_RETURN_IF_ERROR(CheckRepeats());
    }
    PENSTOCK_ASSIGN_OR_RETURN(const NcclLibrary* nccl, LoadNccl());
    PENSTOCK_RETURN_IF_ERROR(ToStatus(cudaSetDevice(cuda_.device()), "choosing the device"));
    auto group = std::make_unique<NcclGroup>(*nccl, cuda_);
    PENSTOCK_RETURN_IF_ERROR(group->Join(id, rank, size, deadline));
    return group;
  }

 private:
  // NCCL is configured for this in the environment only, and that is the user's: it cannot be changed safely
  // while other threads run.
  static absl::Status CheckRepeats() {
    const char* nvls = std::getenv("NCCL_NVLS_ENABLE");
    if (nvls != nullptr && std::strcmp(nvls, "0") == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "sums over more than two GPUs repeat bit for bit only without NVLink's own reductions: "
        "start the "
        "workers with NCCL_NVLS_ENABLE=0, or set training.deterministic to false");
  }

  CudaContext& cuda_;
};

}  // namespace

std::unique_ptr<DeviceGroups> MakeGroups(CudaContext& context) {
  return std::make_unique<NcclGroups>(context);
}

}  // namespace penstock::cuda
