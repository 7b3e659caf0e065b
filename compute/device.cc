#include "compute/device.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace penstock {

absl::StatusOr<Device> ParseDevice(absl::string_view text) {
  if (text == "auto") return Device{Device::Kind::kAuto};
  if (text == "cpu") return Device{Device::Kind::kCpu};
  absl::string_view number = text;
  int index = 0;
  if (absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &index) && index >= 0) {
    return Device{Device::Kind::kCuda, index};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("device \"", text, "\"; expected auto, cpu, or cuda:N with N from 0"));
}

std::string DeviceOfWorker(const std::string& device, int worker, absl::Span<const int> gpus) {
  // One GPU, or none, is for the worker to find.
  if (device != "auto" || gpus.size() < 2) return device;
  return absl::StrCat("cuda:", gpus[worker % gpus.size()]);
}

bool UsesGpu(const std::string& device, absl::Span<const int> gpus) {
  return device == "auto" ? !gpus.empty() : device != "cpu";
}

int WorkersOnDeviceOf(const std::string& device, int worker, int workers,
                      absl::Span<const int> gpus) {
  if (!UsesGpu(device, gpus)) return 1;
  int sharing = 0;
  for (int other = 0; other < workers; ++other) {
    sharing += DeviceOfWorker(device, other, gpus) == DeviceOfWorker(device, worker, gpus) ? 1 : 0;
  }
  return sharing;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendOn(const Device& device, int threads,
                                                       Repeatability repeatability) {
  if (device.kind == Device::Kind::kCpu) return MakeCpuBackend(threads);
  absl::StatusOr<std::unique_ptr<Backend>> gpu = MakeCudaBackend(device.index, repeatability);
  if (device.kind == Device::Kind::kAuto && absl::IsUnavailable(gpu.status())) {
    return MakeCpuBackend(threads);
  }
  return gpu;
}

}  // namespace penstock
