// MakeCudaBackend: finds and loads the plugin.
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/cuda/architectures.h"
#include "compute/cuda/plugin.h"

namespace penstock {
namespace {

// Beside the program, in the folder for libraries next to it, or (tests) where the build puts programs;
// else where the loader looks.
std::string PluginPath() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    for (const char* folder : {".", "../lib", "../../bin"}) {
      const std::filesystem::path path = program.parent_path() / folder / cuda::kPluginFile;
      if (std::filesystem::exists(path, error)) return path.string();
    }
  }
  return cuda::kPluginFile;
}

// The last error of the loader, whose text names the library it did not find.
std::string LoaderError() {
  const char* message = dlerror();
  return message == nullptr ? "unknown error" : message;
}

// CUDA's driver, by the functions that are needed here; its header is not.
constexpr int kCudaSuccess = 0;
constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR

template <typename Function>
Function* FindIn(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

std::vector<int> UsableGpus() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays loaded, once it is started
  if (driver == nullptr) return {};
  auto* const init = FindIn<int(unsigned)>(driver, "cuInit");
  auto* const get_count = FindIn<int(int*)>(driver, "cuDeviceGetCount");
  auto* const get_device = FindIn<int(int*, int)>(driver, "cuDeviceGet");
  auto* const get_attribute = FindIn<int(int*, int, int)>(driver, "cuDeviceGetAttribute");
  int count = 0;
  if (init == nullptr || get_count == nullptr || get_device == nullptr ||
      get_attribute == nullptr || init(0) != kCudaSuccess || get_count(&count) != kCudaSuccess) {
    return {};
  }
  std::vector<int> usable;
  for (int gpu = 0; gpu < count; ++gpu) {
    int device = 0, major = 0;
    if (get_device(&device, gpu) == kCudaSuccess &&
        get_attribute(&major, kCapabilityMajor, device) == kCudaSuccess &&
        major >= cuda::kCapabilityMajorMin) {
      usable.push_back(gpu);
    }
  }
  return usable;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device, Repeatability repeatability) {
  // Without a driver the libraries load all the same, and take 200 MB to find out.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    return absl::UnavailableError(absl::StrCat("no NVIDIA driver: ", LoaderError()));
  }
  dlclose(driver);
  const std::string path = PluginPath();
  // Stays loaded: what it makes lives as long as the program may want.
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "there is an NVIDIA driver, but the CUDA back-end does not load: ", LoaderError(),
        "; install the CUDA 13 run-time libraries and cuDNN 9, or use --device cpu"));
  }
  auto* make =
      reinterpret_cast<cuda::MakeBackendFunction*>(dlsym(plugin, cuda::kMakeBackendSymbol));
  if (make == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not Penstock's: ", LoaderError()));
  }
  const auto* version = static_cast<const char*>(dlsym(plugin, cuda::kVersionSymbol));
  if (version == nullptr || std::string(version) != cuda::kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of build ", version == nullptr ? "unknown" : version,
                     ", this program of ", cuda::kVersion, "; install both from one build"));
  }
  return make(device, repeatability);
}

}  // namespace penstock
