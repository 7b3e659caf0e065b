#include "compute/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

namespace penstock::cuda {
namespace {

// A process that has computed nothing yet will take this for its context, the code of its kernels and of the libraries, and
// their workspace. The number is set aside and not measured, and is rather too large.
constexpr int64_t kContextBytes = int64_t{1} << 30;

// Buffers may be dropped by any thread, so each call says which device it means.
class OfDevice : public MemorySource {
 public:
  explicit OfDevice(int device) : device_(device) {}

  void* Allocate(int64_t size_bytes) override {
    void* data = nullptr;
    if (cudaSetDevice(device_) != cudaSuccess) return nullptr;
    const cudaError_t error = Take(&data, size_bytes);
    if (error == cudaSuccess) return data;
    // That memory is out is the caller's to say; any other error is for the next check.
    if (error == cudaErrorMemoryAllocation) (void)cudaGetLastError();
    return nullptr;
  }
  void Free(void* data, int64_t /*size_bytes*/) override {
    (void)cudaSetDevice(device_);
    // What was queued may still use a block that came back to the pool.
    (void)cudaDeviceSynchronize();
    (void)Give(data);
  }

 private:
  virtual cudaError_t Take(void** data, int64_t size_bytes) = 0;
  virtual cudaError_t Give(void* data) = 0;

  const int device_;
};

class Device : public OfDevice {
  using OfDevice::OfDevice;
  cudaError_t Take(void** data, int64_t size_bytes) override {
    return cudaMalloc(data, size_bytes);
  }
  cudaError_t Give(void* data) override { return cudaFree(data); }
};

class Pinned : public OfDevice {
  using OfDevice::OfDevice;
  cudaError_t Take(void** data, int64_t size_bytes) override {
    return cudaHostAlloc(data, size_bytes, cudaHostAllocPortable);
  }
  cudaError_t Give(void* data) override { return cudaFreeHost(data); }
};

template <typename Source>
MemorySource& Immortal(int device) {
  static auto& mutex = *new std::mutex;
  static auto& sources = *new std::map<int, std::unique_ptr<MemorySource>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<MemorySource>& source = sources[device];
  if (source == nullptr) source = std::make_unique<Source>(device);
  return *source;
}

}  // namespace

int64_t ShareOfMemory(int64_t free_bytes, int processes) {
  const int64_t others_bytes = (processes - 1) * kContextBytes;
  return std::max<int64_t>(0, free_bytes - others_bytes) / processes;
}

MemorySource& DeviceMemory(int device) { return Immortal<Device>(device); }
MemorySource& PinnedMemory(int device) { return Immortal<Pinned>(device); }

}  // namespace penstock::cuda
