// The CUDA back-end: the parts of this folder put together.
#include <cudnn.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "compute/backend.h"
#include "compute/cuda/context.h"
#include "compute/cuda/copies.h"
#include "compute/cuda/error.h"
#include "compute/cuda/graphs.h"
#include "compute/cuda/groups.h"
#include "compute/cuda/ipc.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/marks.h"
#include "compute/cuda/memory.h"
#include "compute/cuda/ops.h"
#include "compute/cuda/plugin.h"
#include "compute/cuda/prefetch.h"
#include "compute/cuda/slices.h"

namespace penstock::cuda {
namespace {

struct Maker {
  const Op* op;
  MadeKernels (*make)(CudaContext&, const KernelSpec&);
};
constexpr Maker kMakers[] = {
#define PENSTOCK_CUDA_MAKER(Name) {&ops::k##Name, Make##Name},
    PENSTOCK_OPS(PENSTOCK_CUDA_MAKER) PENSTOCK_EVALUATION_OPS(PENSTOCK_CUDA_MAKER)
#undef PENSTOCK_CUDA_MAKER
};

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(std::unique_ptr<CudaContext> context)
      : context_(std::move(context)),
        copies_(*context_),
        share_(*context_, copies_),
        groups_(MakeGroups(*context_)),
        prefetch_(*context_),
        name_(Describe(*context_)) {}

  absl::string_view name() const override { return name_; }
  std::string arithmetic() const override { return DescribeArithmetic(*context_); }
  int64_t memory_bytes(int processes) const override {
    return ShareOfMemory(context_->free_bytes(), processes);
  }
  BufferPool& pool() override { return context_->pool(); }
  BufferPool& host_pool() override { return context_->host_pool(); }

  absl::Status CheckPrecision(Precision precision) const override {
    const cudaDeviceProp& device = context_->properties();
    const bool has_fp8 = device.major > 8 || (device.major == 8 && device.minor >= 9);
    if (precision != Precision::kFp8 || has_fp8) return absl::OkStatus();
    return absl::UnimplementedError(kFp8Devices);
  }
  absl::StatusOr<std::unique_ptr<OpKernels>> MakeKernels(KernelSpec spec,
                                                         Precision precision) override {
    PENSTOCK_RETURN_IF_ERROR(CheckPrecision(precision));
    spec.bf16 = HasMirror(precision);
    spec.fp8 = precision == Precision::kFp8;
    for (const Maker& maker : kMakers) {
      if (*maker.op == *spec.node.op) return maker.make(*context_, spec);
    }
    return absl::UnimplementedError(absl::StrCat("CUDA has no kernels for ", spec.node.op->name));
  }
  ScratchBytes TakeScratchNeeds() override {
    return {
        .of_pass = context_->layer_scratch().TakeNeeds(),
        .of_library = context_->library_workspace_bytes() + context_->fp8_scratch().TakeNeeds()};
  }
  int64_t scratch_bytes() const override { return 0; }
  absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
      const OptimizerConfig& config, absl::Span<const ParameterSlice> slices) override {
    return cuda::MakeOptimizer(*context_, config, slices);
  }
  absl::StatusOr<std::unique_ptr<SliceNorms>> MakeSliceNorms(
      absl::Span<const ParameterSlice> slices) override {
    return cuda::MakeSliceNorms(*context_, slices);
  }

  absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor) override {
    return copies_.StartToHost(tensor);
  }
  absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing) override {
    return copies_.FinishToHost(std::move(outgoing));
  }
  absl::StatusOr<Tensor> ToDevice(const Tensor& host) override { return copies_.ToDevice(host); }
  absl::StatusOr<bool> Poll(int64_t ticket) override { return copies_.tickets().Poll(ticket); }
  DeviceShare* share() override { return &share_; }
  DeviceGroups* groups() override { return groups_.get(); }
  absl::StatusOr<Incoming> StartToDevice(const Tensor& host) override {
    return prefetch_.StartToDevice(host);
  }
  absl::StatusOr<Tensor> FinishToDevice(Incoming incoming) override {
    return prefetch_.FinishToDevice(std::move(incoming));
  }

  // From memory that is not page-locked: the driver copies it before the call returns.
  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    Note(cudaMemcpyAsync(device, host, size_bytes, cudaMemcpyHostToDevice, context_->stream()),
         "copying to the device");
  }
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    Note(cudaMemcpyAsync(host, device, size_bytes, cudaMemcpyDeviceToHost, context_->stream()),
         "copying to the host");
    context_->Note(context_->WaitForStream("a copy to the host"));
  }
  void CopyOnDevice(void* to, const void* from, int64_t size_bytes) override {
    Note(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, context_->stream()),
         "copying on the device");
  }
  void ConvertToBf16(uint16_t* to, const float* from, int64_t count) override {
    cuda::ConvertToBf16(context_->stream(), count, from, to);
    NoteLaunch("rounding to bf16");
  }
  void ConvertFromBf16(float* to, const uint16_t* from, int64_t count) override {
    cuda::ConvertToFloat(context_->stream(), 1, count, from, nullptr, to);
    NoteLaunch("widening bf16");
  }
  void RoundToBf16(float* values, int64_t count) override {
    cuda::RoundToBf16(context_->stream(), count, values);
    NoteLaunch("rounding to bf16 in place");
  }
  void ConvertToBf16(uint16_t* to, const float* from, int64_t count,
                     const StochasticRounding& rounding) override {
    cuda::RoundToBf16(context_->stream(), count, from, rounding, to);
    NoteLaunch("rounding to bf16 at random");
  }
  void Fill(float* device, float value, int64_t count) override {
    cuda::Fill(context_->stream(), count, value, device);
    NoteLaunch("filling an array");
  }
  void AddInto(float* a, const float* b, int64_t count) override {
    cuda::AddInto(context_->stream(), count, b, a);
    NoteLaunch("adding to an array");
  }
  void Scale(float* a, float factor, int64_t count) override {
    cuda::Scale(context_->stream(), count, factor, a);
    NoteLaunch("scaling an array");
  }
  void LinearCombination(float* to, float a, const float* x, float b, const float* y,
                         int64_t count) override {
    cuda::LinearCombination(context_->stream(), count, a, x, b, y, to);
    NoteLaunch("combining arrays");
  }
  void CompensateDelay(float* gradients, float strength, const float* now, const float* read,
                       int64_t count) override {
    cuda::CompensateDelay(context_->stream(), count, strength, now, read, gradients);
    NoteLaunch("compensating gradients for their delay");
  }
  void CompensateDelay(float* gradients, float* mean_squares,
                       const MeanSquareCompensation& compensation, const float* now,
                       const float* read, int64_t count) override {
    cuda::CompensateDelay(context_->stream(), count, compensation, now, read, mean_squares,
                          gradients);
    NoteLaunch("compensating gradients for their delay by mean squares");
  }

  std::unique_ptr<PassGraphs> MakePassGraphs() override {
    return std::make_unique<CudaPassGraphs>(*context_);
  }

  absl::Status Synchronize() override {
    context_->Note(context_->WaitForStream("what was queued"));
    return context_->Check("waiting for the GPU");
  }
  absl::Status CheckUsable() override { return context_->CheckUsable(); }
  absl::StatusOr<std::unique_ptr<DeviceMarks>> MakeMarks(int count) override {
    return cuda::MakeMarks(*context_, count);
  }

 private:
  static std::string Describe(const CudaContext& context) {
    return absl::StrFormat("cuda:%d (%s, %s)", context.device(), context.properties().name,
                           PartsOf(context));
  }
  // Without its number. Algorithms are chosen by shape, device and library, so all of them are here.
  static std::string DescribeArithmetic(const CudaContext& context) {
    return absl::StrFormat("%s (%s)", context.properties().name, PartsOf(context));
  }
  static std::string PartsOf(const CudaContext& context) {
    const cudaDeviceProp& properties = context.properties();
    const auto cudnn = static_cast<int>(cudnnGetVersion());
    return absl::StrFormat("sm_%d%d, cuBLASLt %d, cuDNN %d.%d.%d", properties.major,
                           properties.minor, static_cast<int>(cublasLtGetVersion()), cudnn / 10000,
                           cudnn / 100 % 100, cudnn % 100);
  }

  void Note(cudaError_t error, absl::string_view what) { context_->Note(ToStatus(error, what)); }
  // At once, because asking for an event that has not happened takes the place of the launch's error.
  void NoteLaunch(absl::string_view what) { context_->Note(context_->Check(what)); }

  const std::unique_ptr<CudaContext> context_;
  Copies copies_;
  IpcShare share_;
  const std::unique_ptr<DeviceGroups> groups_;
  Prefetch prefetch_;
  const std::string name_;
};

}  // namespace
}  // namespace penstock::cuda

extern "C" __attribute__((visibility("default"))) const char PenstockCudaVersion[];
const char PenstockCudaVersion[] = PENSTOCK_VERSION " " __VERSION__;

extern "C" __attribute__((visibility("default")))
penstock::cuda::MakeBackendFunction PenstockMakeCudaBackend;

absl::StatusOr<std::unique_ptr<penstock::Backend>> PenstockMakeCudaBackend(
    int device, penstock::Repeatability repeatability) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<penstock::cuda::CudaContext> context,
                            penstock::cuda::CudaContext::Create(device, repeatability));
  return std::make_unique<penstock::cuda::CudaBackend>(std::move(context));
}
