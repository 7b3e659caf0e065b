#include "compute/cuda/marks.h"

#include <cmath>
#include <vector>

#include "base/status.h"
#include "compute/cuda/error.h"
#include "compute/cuda/profiler.h"

namespace penstock::cuda {
namespace {

class CudaMarks : public DeviceMarks {
 public:
  explicit CudaMarks(CudaContext& context) : cuda_(context) {}
  ~CudaMarks() override {
    for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  }

  absl::Status Make(int count) {
    events_.reserve(count);
    for (int i = 0; i < count; ++i) {
      cudaEvent_t event = nullptr;
      PENSTOCK_RETURN_IF_ERROR(
          ToStatus(cudaEventCreate(&event), "making an event that tells time"));
      events_.push_back(event);
    }
    return absl::OkStatus();
  }

  void Put(int mark, DeviceStream stream) override {
    cuda_.Note(ToStatus(cudaEventRecord(events_[mark], StreamOf(stream)), "recording an event"));
  }

  bool Passed(int mark) override {
    const cudaError_t state = cudaEventQuery(events_[mark]);
    if (state == cudaErrorNotReady) return false;
    cuda_.Note(ToStatus(state, "asking for an event"));
    return state == cudaSuccess;
  }

  int64_t ElapsedNs(int from, int to) override {
    float milliseconds = 0.0f;
    cuda_.Note(ToStatus(cudaEventElapsedTime(&milliseconds, events_[from], events_[to]),
                        "reading the time between two events"));
    return std::llround(static_cast<double>(milliseconds) * 1e6);
  }

  void BeginRange(const char* name) override { BeginProfilerRange(name); }
  void EndRange() override { EndProfilerRange(); }

 private:
  cudaStream_t StreamOf(DeviceStream stream) const {
    switch (stream) {
      case DeviceStream::kCompute:
        return cuda_.stream();
      case DeviceStream::kCopyIn:
        return cuda_.copy_in();
      case DeviceStream::kCopyOut:
        return cuda_.copy_out();
    }
    return cuda_.stream();
  }

  CudaContext& cuda_;
  std::vector<cudaEvent_t> events_;  // by mark
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMarks>> MakeMarks(CudaContext& context, int count) {
  auto marks = std::make_unique<CudaMarks>(context);
  PENSTOCK_RETURN_IF_ERROR(marks->Make(count));
  return marks;
}

}  // namespace penstock::cuda
