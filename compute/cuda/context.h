// CudaContext: shared by the layers of a CUDA back-end: device, streams, library handles, scratch
// memory.
//
// All kernels go to one stream, in the order in which they are asked for; more streams copy to and from the
// device beside them: tensors each way, and what is needed later, which must not hold up a tensor.
// Blocks of the pool are only ever used in the order of the compute stream, so a block that came
// back may be given out again while a kernel still works on it.
//
// An error of the device is kept until someone asks: Check.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compute/backend.h"
#include "compute/buffer_pool.h"
#include "compute/cuda/convolution.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/product_shape.h"
#include "compute/cuda/sdpa.h"
#include "compute/dropout.h"

namespace penstock::cuda {

// Scratch memory: content lives no longer than one pass of one layer, so all layers share it. Grows
// while layers are made.
class Scratch {
 public:
  explicit Scratch(BufferPool& pool) : pool_(pool) {}
  // Errors: ResourceExhausted; what there was stays.
  absl::Status Reserve(int64_t size_bytes);
  void* data() const { return buffer_ ? buffer_.data() : nullptr; }
  // The most that was reserved since the last call.
  int64_t TakeNeeds() { return std::exchange(needs_bytes_, 0); }

 private:
  BufferPool& pool_;
  Buffer buffer_;
  int64_t needs_bytes_ = 0;
};

class CudaContext {
 public:
  // Errors: Unavailable (no driver, no such device), ResourceExhausted, Internal.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Create(int device,
                                                             Repeatability repeatability);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  int device() const { return device_; }
  Repeatability repeatability() const { return repeatability_; }
  const cudaDeviceProp& properties() const { return properties_; }
  // That the device had left when this context was ready, with what its pool holds.
  int64_t free_bytes() const { return free_bytes_; }
  cudaStream_t stream() const { return compute_; }
  cudaStream_t copy_in() const { return copy_in_; }
  cudaStream_t copy_out() const { return copy_out_; }
  cudaStream_t prefetch() const { return prefetch_; }
  cublasLtHandle_t blas() const { return blas_; }
  cudnnHandle_t dnn() const { return dnn_; }

  BufferPool& pool() { return pool_; }
  BufferPool& host_pool() { return host_pool_; }
  // Memory of the running pass, and of the library call inside it.
  Scratch& layer_scratch() { return layer_scratch_; }
  void* library_workspace() const { return library_workspace_.data(); }
  int64_t library_workspace_bytes() const { return kLibraryWorkspaceBytes; }
  // The operands of a product of fp8, as it reads them (product.cc).
  Scratch& fp8_scratch() { return fp8_scratch_; }

  // The mask of a pass. In a CUDA graph the kernel reads the sample from memory, where the replaying code
  // has written it before.
  DeviceMask MaskOf(const Dropout& dropout, const PassContext& pass) const {
    return {dropout.Mask(pass), reads_sample_memory_ ? sample_memory() : nullptr};
  }
  int64_t* sample_memory() const { return static_cast<int64_t*>(sample_memory_.data()); }
  void set_reads_sample_memory(bool reads) { reads_sample_memory_ = reads; }

  // Of products that were timed.
  ProductChoices& product_choices() { return product_choices_; }

  // cuDNN's fused attention for a shape, shared by all layers; null where cuDNN has none, and then `why_not` says why.
  struct KnownSdpa {
    AttentionShape shape;
    std::unique_ptr<Sdpa> sdpa;
    std::string why_not;
  };
  // Errors: those of cuDNN.
  absl::StatusOr<const KnownSdpa*> SdpaFor(const AttentionShape& shape);
  // Convolutions of a shape, shared by all nodes. Errors: those of cuDNN.
  absl::StatusOr<const Convolution*> ConvolutionFor(const ConvolutionShape& shape);

  // The first error since the last call, of what was queued so far as far as it is known. `what`: the
  // call that asks.
  absl::Status Check(absl::string_view what);
  // As Backend::CheckUsable.
  absl::Status CheckUsable() const;
  // Waits until an event has happened, or all of the compute stream so far. Errors: DeadlineExceeded after
  // ten minutes, since a device that takes longer hangs; of the device.
  absl::Status WaitFor(cudaEvent_t event, absl::string_view what) const;
  absl::Status WaitForStream(absl::string_view what) const;
  // Remembers an error for the next Check, for calls that return nothing.
  void Note(absl::Status status);

 private:
  // The workspace for cuBLASLt's kernels for Hopper: NVIDIA's documentation recommends 32 MiB.
  static constexpr int64_t kLibraryWorkspaceBytes = int64_t{32} << 20;

  CudaContext(int device, Repeatability repeatability);
  absl::Status Start();

  const int device_;
  const Repeatability repeatability_;
  cudaDeviceProp properties_ = {};
  int64_t free_bytes_ = 0;
  cudaStream_t compute_ = nullptr, copy_in_ = nullptr, copy_out_ = nullptr, prefetch_ = nullptr;
  cudaEvent_t stream_done_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  cudnnHandle_t dnn_ = nullptr;
  BufferPool pool_, host_pool_;
  Scratch layer_scratch_, fp8_scratch_;
  Buffer library_workspace_;
  Buffer sample_memory_;  // one int64
  bool reads_sample_memory_ = false;
  ProductChoices product_choices_;
  std::deque<KnownSdpa> sdpas_;
  struct KnownConvolution {
    ConvolutionShape shape;
    std::unique_ptr<Convolution> convolution;
  };
  std::vector<KnownConvolution> convolutions_;
  absl::Status error_;
};

}  // namespace penstock::cuda
