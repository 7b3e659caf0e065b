#include "compute/cuda/context.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "compute/cuda/architectures.h"
#include "compute/cuda/error.h"
#include "compute/cuda/memory.h"

namespace penstock::cuda {

namespace {

constexpr std::chrono::minutes kWaitMax{10};
// Waits shorter than this are polled for; sleeping costs more.
constexpr std::chrono::microseconds kSpin{200};
constexpr std::chrono::microseconds kNap{20};

bool Same(const AttentionShape& a, const AttentionShape& b) {
  const auto sizes = [](const AttentionShape& s) {
    return std::tie(s.batch, s.queries, s.keys, s.heads, s.size, s.key_value_heads, s.query_stride,
                    s.key_stride, s.causal, s.window);
  };
  return sizes(a) == sizes(b);
}

}  // namespace

absl::Status Scratch::Reserve(int64_t size_bytes) {
  needs_bytes_ = std::max(needs_bytes_, size_bytes);
  if (buffer_ && buffer_.size_bytes() >= size_bytes) return absl::OkStatus();
  Buffer larger = pool_.Acquire(std::max<int64_t>(size_bytes, 1));
  if (!larger) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("no memory for %d bytes of scratch", size_bytes));
  }
  buffer_ = std::move(larger);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Create(int device,
                                                                 Repeatability repeatability) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return absl::UnavailableError(ToStatus(error, "looking for GPUs").message());
  }
  if (device < 0 || device >= count) {
    return absl::UnavailableError(
        absl::StrFormat("there is no GPU %d; this machine has %d, numbered from 0", device, count));
  }
  std::unique_ptr<CudaContext> context(new CudaContext(device, repeatability));
  PENSTOCK_RETURN_IF_ERROR(Annotate(context->Start(), absl::StrCat("starting GPU ", device)));
  return context;
}

CudaContext::CudaContext(int device, Repeatability repeatability)
    : device_(device),
      repeatability_(repeatability),
      pool_(DeviceMemory(device)),
      host_pool_(PinnedMemory(device)),
      layer_scratch_(pool_),
      fp8_scratch_(pool_) {}

absl::Status CudaContext::Start() {
  PENSTOCK_RETURN_IF_ERROR(ToStatus(cudaSetDevice(device_), "choosing the device"));
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaGetDeviceProperties(&properties_, device_), "reading its properties"));
  if (properties_.major < kCapabilityMajorMin) {
    return absl::UnavailableError(absl::StrFormat(
        "%s has compute capability %d.%d; this build is for %d.0 and newer", properties_.name,
        properties_.major, properties_.minor, kCapabilityMajorMin));
  }
  for (cudaStream_t* stream : {&compute_, &copy_in_, &copy_out_, &prefetch_}) {
    PENSTOCK_RETURN_IF_ERROR(
        ToStatus(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream"));
  }
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaEventCreateWithFlags(&stream_done_, cudaEventDisableTiming), "making an event"));
  PENSTOCK_RETURN_IF_ERROR(ToStatus(cublasLtCreate(&blas_), "starting cuBLASLt"));
  if (const cudnnStatus_t status = cudnnCreate(&dnn_); status != CUDNN_STATUS_SUCCESS) {
    return absl::InternalError(absl::StrCat("starting cuDNN: ", cudnnGetErrorString(status)));
  }
  if (const cudnnStatus_t status = cudnnSetStream(dnn_, compute_); status != CUDNN_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("giving cuDNN the stream: ", cudnnGetErrorString(status)));
  }
  library_workspace_ = pool_.Acquire(kLibraryWorkspaceBytes);
  sample_memory_ = pool_.Acquire(sizeof(int64_t));
  if (!library_workspace_ || !sample_memory_)
    return absl::ResourceExhaustedError("no memory for the libraries");
  size_t free_bytes = 0, total_bytes = 0;
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the free memory"));
  free_bytes_ = static_cast<int64_t>(free_bytes) + pool_.stats().bytes_held;
  return absl::OkStatus();
}

CudaContext::~CudaContext() {
  (void)cudaSetDevice(device_);
  (void)cudaDeviceSynchronize();
  sdpas_.clear();
  convolutions_.clear();
  if (dnn_ != nullptr) (void)cudnnDestroy(dnn_);
  if (blas_ != nullptr) (void)cublasLtDestroy(blas_);
  if (stream_done_ != nullptr) (void)cudaEventDestroy(stream_done_);
  for (cudaStream_t stream : {compute_, copy_in_, copy_out_, prefetch_}) {
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }
}

absl::StatusOr<const CudaContext::KnownSdpa*> CudaContext::SdpaFor(const AttentionShape& shape) {
  for (const KnownSdpa& known : sdpas_) {
    if (Same(known.shape, shape)) return &known;
  }
  absl::StatusOr<std::unique_ptr<Sdpa>> sdpa = Sdpa::Create(dnn_, shape, repeatability_);
  std::string why_not;
  if (absl::IsUnimplemented(sdpa.status())) {
    why_not = std::string(sdpa.status().message());
    sdpa = nullptr;
  }
  PENSTOCK_RETURN_IF_ERROR(sdpa.status());
  sdpas_.push_back({shape, *std::move(sdpa), std::move(why_not)});
  return &sdpas_.back();
}

absl::StatusOr<const Convolution*> CudaContext::ConvolutionFor(const ConvolutionShape& shape) {
  for (const KnownConvolution& known : convolutions_) {
    if (known.shape == shape) return known.convolution.get();
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      std::unique_ptr<Convolution> convolution,
      Convolution::Create({.handle = dnn_, .repeatability = repeatability_}, shape));
  convolutions_.push_back({shape, std::move(convolution)});
  return convolutions_.back().convolution.get();
}

absl::Status CudaContext::WaitFor(cudaEvent_t event, absl::string_view what) const {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const cudaError_t state = cudaEventQuery(event);
    if (state != cudaErrorNotReady) return ToStatus(state, what);
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kWaitMax) {
      return absl::DeadlineExceededError(
          absl::StrCat("GPU ", device_, " did not finish ", what, " within 10 minutes"));
    }
    if (waited > kSpin) std::this_thread::sleep_for(kNap);
  }
}

absl::Status CudaContext::WaitForStream(absl::string_view what) const {
  PENSTOCK_RETURN_IF_ERROR(ToStatus(cudaEventRecord(stream_done_, compute_), what));
  return WaitFor(stream_done_, what);
}

absl::Status CudaContext::Check(absl::string_view what) {
  if (!error_.ok()) return std::exchange(error_, absl::OkStatus());
  const cudaError_t error = cudaGetLastError();
  // Asking for an event that has not happened yet leaves this error behind.
  return error == cudaErrorNotReady ? absl::OkStatus() : ToStatus(error, what);
}

absl::Status CudaContext::CheckUsable() const {
  (void)cudaGetLastError();  // told by now; one that stays is returned again
  const cudaError_t error = cudaStreamQuery(compute_);
  if (error == cudaSuccess || error == cudaErrorNotReady) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("this process cannot use GPU ", device_,
                                             " any more: ", cudaGetErrorName(error), ": ",
                                             cudaGetErrorString(error)));
}

void CudaContext::Note(absl::Status status) {
  if (error_.ok()) error_ = std::move(status);
}

}  // namespace penstock::cuda
