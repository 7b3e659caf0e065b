// Device: a device to compute on, as people name it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compute/backend.h"

namespace penstock {

struct Device {
  enum class Kind : uint8_t { kAuto, kCpu, kCuda } kind = Kind::kAuto;
  int index = 0;  // of kCuda
  friend bool operator==(const Device&, const Device&) = default;
};

// "auto" (the first GPU, or else the CPU), "cpu" or "cuda:N". Errors: InvalidArgument.
absl::StatusOr<Device> ParseDevice(absl::string_view text);

// The device of worker number `worker` where all are given `device` and the machine has these GPUs: with "auto" one GPU after
// the other, from the first again after the last.
std::string DeviceOfWorker(const std::string& device, int worker, absl::Span<const int> gpus);
// Whether workers that are given `device` compute on GPUs.
bool UsesGpu(const std::string& device, absl::Span<const int> gpus);
// How many of `workers` have the GPU of worker number `worker`, itself included; 1 without a GPU.
int WorkersOnDeviceOf(const std::string& device, int worker, int workers,
                      absl::Span<const int> gpus);

// `threads`: of the CPU's kernels. Errors: those of MakeCpuBackend and MakeCudaBackend; kAuto passes over a
// GPU that is Unavailable only.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOn(
    const Device& device, int threads, Repeatability repeatability = Repeatability::kBitwise);

}  // namespace penstock
