// Backend: one kind of device (the CPU through oneDNN, later CUDA) behind one small interface.
//
// The layers, optimizers and norms of a stage come from here; everything above this line is
// device-neutral. A back-end is chosen by file (compute/cpu/, compute/cuda/ or compute/no_cuda.cc),
// never by macro, and tests/compute/ runs one conformance suite over all.
//
// A device works through what it is given in the order of the calls and may still be at it when a call
// returns; so whoever drops a tensor after a call need not wait. What brings something to the host waits.
// An error of the device shows in the next call that returns a status.
//
// Thread safety: a back-end and all it makes belong to one thread at a time, except BufferPools.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/buffer_pool.h"
#include "compute/layer.h"
#include "compute/optimizer.h"
#include "compute/tensor.h"
#include "model/chain.h"

namespace penstock {

// How numbers are kept. In kBf16 the products with weight matrices read bf16 and sum in f32, with f32
// master weights; the residual stream, norms, softmax, losses, gradients of weights and optimizer state
// stay f32. A device without fast bf16 products computes kBf16 as kF32.
enum class Precision : uint8_t { kF32, kBf16 };

struct BatchShape {
  int64_t batch = 0;  // samples in a microbatch
  int64_t time = 0;   // time steps in a sample
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

// A tensor on its way to the host.
struct Outgoing {
  Tensor device;       // kept until the copy is done
  Tensor host;         // not to be read before FinishToHost
  int64_t ticket = 0;  // the back-end's own
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual absl::string_view name() const = 0;  // "cpu (oneDNN 2.6.3, avx512_core_bf16, 1 thread)"
  virtual BufferPool& pool() = 0;
  // Memory that the network reads and writes: pool() where the device computes on it.
  virtual BufferPool& host_pool() = 0;

  // The kernels of one layer for one microbatch shape.
  // Errors: Unimplemented (the device lacks a kernel), ResourceExhausted (no memory for their scratch).
  virtual absl::StatusOr<std::unique_ptr<Layer>> MakeLayer(const LayerSpec& spec, BatchShape shape,
                                                           Precision precision) = 0;
  // Both keep a copy of `slices`, which are not empty.
  virtual absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
      const OptimizerConfig& config, absl::Span<const ParameterSlice> slices) = 0;
  virtual absl::StatusOr<std::unique_ptr<SliceNorms>> MakeSliceNorms(
      absl::Span<const ParameterSlice> slices) = 0;

  // Tensors of activations and gradients cross between host_pool() and pool() beside the computation. No
  // copy is made where the two are one.
  //
  // Starts a copy of `tensor` as the calls so far leave it. Errors: ResourceExhausted, of the device.
  virtual absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor) = 0;
  // Waits for the copy, no longer than ten minutes. Errors: DeadlineExceeded, of the device.
  virtual absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing) = 0;
  // The tensor for the device; later calls see it whole. Errors: as StartToHost.
  virtual absl::StatusOr<Tensor> ToDevice(const Tensor& host) = 0;

  // Single copies in the order of the calls. The host's memory is the caller's again on return.
  virtual void CopyToDevice(void* device, const void* host, int64_t size_bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, int64_t size_bytes) = 0;
  // Rounds to nearest even, as the optimizers do for the mirror of the weights.
  virtual void ConvertToBf16(uint16_t* to, const float* from, int64_t count) = 0;

  virtual void Fill(float* device, float value, int64_t count) = 0;
  // a[i] = b[i] + a[i] (b first, so that a tied gradient sums the head's use before the embedding's).
  virtual void AddInto(float* a, const float* b, int64_t count) = 0;

  // Waits until all calls so far are done. Errors: the first since the last status, of the device.
  virtual absl::Status Synchronize() = 0;
};

// The CPU back-end. `threads`: how many threads its kernels use; results are deterministic for a given
// number. Errors: InvalidArgument (fewer than 1 thread, more than 1024).
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(int threads);

// The CUDA back-end on GPU number `device`. Errors: Unavailable (this build has none, or no such GPU).
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device);

}  // namespace penstock
