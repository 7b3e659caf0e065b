// Backend: one kind of device (the CPU through oneDNN, later CUDA) behind one small interface.
//
// The layers, optimizers and norms of a stage come from here; everything above this line is
// device-neutral. A back-end is chosen by file (compute/cpu/, compute/cuda/ or compute/no_cuda.cc),
// never by macro, and tests/compute/ runs one conformance suite over all.
//
// A device works through its calls in order and may still be at it when a call returns; so a caller need
// not wait before it drops a tensor. Calls that bring something to the host do wait. An error of the
// device shows in the next call that returns a status.
//
// Thread safety: a back-end and all it makes belong to one thread at a time, except BufferPools and what
// says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/buffer_pool.h"
#include "compute/device_group.h"
#include "compute/device_marks.h"
#include "compute/elementwise/mean_square_compensation.h"
#include "compute/op_kernels.h"
#include "compute/optimizer.h"
#include "compute/pass_graphs.h"
#include "compute/precision.h"
#include "compute/rounding.h"
#include "compute/tensor.h"
#include "compute/transfers.h"

namespace penstock {

// Rounding makes the bf16 mirror of the weights from the f32 master weights, which it never changes: to
// nearest even, or up or down at random so that the mean is exact (compute/rounding.h).
enum class Rounding : uint8_t { kNearest, kStochastic };

// Where weight versions wait that were replaced and are still to be read.
enum class StashPlace : uint8_t { kDevice, kHost };

// Memory whose content lives no longer than a pass, so that all that a back-end makes shares it: as much as is
// asked for at most, of each kind.
struct ScratchBytes {
  int64_t of_pass = 0;     // of a node, or an optimizer's step
  int64_t of_library = 0;  // of a call of oneDNN or cuBLASLt inside it

  int64_t total() const { return of_pass + of_library; }
  friend bool operator==(const ScratchBytes&, const ScratchBytes&) = default;
};

// A tensor on its way to the device.
struct Incoming {
  Tensor host;         // kept until the copy is done
  Tensor device;       // not to be read before FinishToDevice
  int64_t ticket = 0;  // the back-end's own
};

class Backend : public Transfers {
 public:
  virtual absl::string_view name() const = 0;  // "cpu (oneDNN 2.6.3, avx512 with bf16, 1 thread)"
  // The device and its libraries, on which the bits of results depend: with training.deterministic one build computes the
  // same results for a job on all back-ends of the same arithmetic.
  // "cpu (oneDNN 2.6.3, avx512 with bf16 tiles, 1 thread)", "NVIDIA H200 (sm_90, cuBLASLt 130001, cuDNN 9.19.0)".
  virtual std::string arithmetic() const = 0;
  // For each of `processes` that compute on this device: on a CPU what the machine has, in use or not; on a GPU what was
  // free when this back-end was made, shared among them, less what the others take before they compute anything.
  virtual int64_t memory_bytes(int processes) const = 0;
  virtual BufferPool& pool() = 0;
  // Memory that the network reads and writes: pool() where the device computes on it.
  virtual BufferPool& host_pool() = 0;

  // Whether jobs of this precision are for this device. The CPU refuses kFp8, which it computes, too, but more slowly than
  // anything else: for a reference to compare with. Errors: Unimplemented (it has no products of these numbers), whose
  // message names the devices that have them.
  virtual absl::Status CheckPrecision(Precision precision) const = 0;
  // The kernels of one node. `spec.bf16` and `spec.fp8` are set here, by what the device can do.
  // Errors: Unimplemented (the device lacks a kernel), ResourceExhausted (no memory for their scratch).
  virtual absl::StatusOr<std::unique_ptr<OpKernels>> MakeKernels(KernelSpec spec,
                                                                 Precision precision) = 0;
  // What kernels and optimizers that were made since the last call ask for.
  virtual ScratchBytes TakeScratchNeeds() = 0;
  // What there is of it beside pool(): on the CPU all, on a GPU nothing.
  virtual int64_t scratch_bytes() const = 0;

  // Both keep a copy of `slices`, which are not empty.
  virtual absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
      const OptimizerConfig& config, absl::Span<const ParameterSlice> slices) = 0;
  virtual absl::StatusOr<std::unique_ptr<SliceNorms>> MakeSliceNorms(
      absl::Span<const ParameterSlice> slices) = 0;

  // Works like ToDevice, for a tensor that is needed later: the copy begins once the calls so far are
  // done, and runs beside those that follow. Errors: as StartToHost.
  virtual absl::StatusOr<Incoming> StartToDevice(const Tensor& host) = 0;
  // The tensor for the device; later calls see it whole. Does not wait. Errors: of the device.
  virtual absl::StatusOr<Tensor> FinishToDevice(Incoming incoming) = 0;

  // Groups of devices that reduce together; null where there are none. Lives as long as the back-end.
  virtual DeviceGroups* groups() = 0;

  // Single copies in the order of the calls. The host's memory is the caller's again on return.
  virtual void CopyToDevice(void* device, const void* host, int64_t size_bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, int64_t size_bytes) = 0;
  virtual void CopyOnDevice(void* to, const void* from, int64_t size_bytes) = 0;
  // Rounds to nearest even, as the optimizers do for the mirror of the weights.
  virtual void ConvertToBf16(uint16_t* to, const float* from, int64_t count) = 0;
  virtual void ConvertFromBf16(float* to, const uint16_t* from, int64_t count) = 0;
  // Makes numbers what bf16 can hold, as ConvertToBf16 does, and leaves them where they are.
  virtual void RoundToBf16(float* values, int64_t count) = 0;
  // Rounds at random instead; `from` is the parameter's first element.
  virtual void ConvertToBf16(uint16_t* to, const float* from, int64_t count,
                             const StochasticRounding& rounding) = 0;

  virtual void Fill(float* device, float value, int64_t count) = 0;
  // a[i] = b[i] + a[i] (b first, so that a tied gradient sums the last use before the first).
  virtual void AddInto(float* a, const float* b, int64_t count) = 0;
  // a[i] = a[i] * factor.
  virtual void Scale(float* a, float factor, int64_t count) = 0;
  // to[i] = a x[i] + b y[i]; `to` may be either.
  virtual void LinearCombination(float* to, float a, const float* x, float b, const float* y,
                                 int64_t count) = 0;
  // gradients[i] += strength * gradients[i]^2 * (now[i] - read[i]).
  virtual void CompensateDelay(float* gradients, float strength, const float* now,
                               const float* read, int64_t count) = 0;
  // The same with the strength of each element over the root of its mean square, which it renews. `now` and
  // `read` may be one array.
  virtual void CompensateDelay(float* gradients, float* mean_squares,
                               const MeanSquareCompensation& compensation, const float* now,
                               const float* read, int64_t count) = 0;

  // For one stage; null where a pass costs the host little. REQUIRES: the back-end outlives it.
  virtual std::unique_ptr<PassGraphs> MakePassGraphs() { return nullptr; }

  // Waits until all calls so far are done. Errors: the first since the last status, of the device.
  virtual absl::Status Synchronize() = 0;

  // Says, after an error, whether this process can compute on the device again. Errors: Unavailable (an error that every
  // later call returns too, as one of a kernel on a GPU: only a new process gets a new context).
  virtual absl::Status CheckUsable() { return absl::OkStatus(); }

  // `count` marks, numbered from 0; null where calls return when their work is done, so that the host's
  // clock tells the device's time. REQUIRES: the back-end outlives them.
  // Errors: of the device.
  virtual absl::StatusOr<std::unique_ptr<DeviceMarks>> MakeMarks(int count) = 0;
};

// The CPU back-end. `threads`: how many threads its kernels use; results are deterministic for a given
// number. Errors: InvalidArgument (fewer than 1 thread, more than 1024).
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(int threads);

// Says whether a device may use faster algorithms whose results differ in the last bits from run to run
// (training.deterministic). The CPU has none.
enum class Repeatability : uint8_t { kBitwise, kFast };

// The numbers of the GPUs that the CUDA back-end can compute on, ascending; none without a driver, or in a build
// without CUDA. Asks the driver alone, and makes no context.
std::vector<int> UsableGpus();

// The CUDA back-end on GPU number `device`. Errors: Unavailable (this build has none, or no such GPU).
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(
    int device, Repeatability repeatability = Repeatability::kBitwise);

}  // namespace penstock
