// Device: a device to compute on, as people name it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compute/backend.h"

namespace penstock {

struct Device {
  enum class Kind : uint8_t { kAuto, kCpu, kCuda } kind = Kind::kAuto;
  int index = 0;  // of kCuda
  friend bool operator==(const Device&, const Device&) = default;
};

// "auto" (the first GPU, or else the CPU), "cpu" or "cuda:N". Errors: InvalidArgument.
absl::StatusOr<Device> ParseDevice(absl::string_view text);

// `threads`: of the CPU's kernels. Errors: those of MakeCpuBackend and MakeCudaBackend; kAuto passes over a
// GPU that is Unavailable only.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOn(
    const Device& device, int threads, Repeatability repeatability = Repeatability::kBitwise);

}  // namespace penstock
