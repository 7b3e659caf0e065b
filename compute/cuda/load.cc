// MakeCudaBackend: finds and loads the plugin.
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
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

}  // namespace

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
