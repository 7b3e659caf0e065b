#include "compute/cuda/nccl_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace penstock::cuda {
namespace {

constexpr char kFile[] = "libnccl.so.2";

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(kFile, " has no ", name));
}

absl::StatusOr<const NcclLibrary*> Load() {
  void* file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);  // stays loaded
  if (file == nullptr) {
    const char* reason = dlerror();
    return absl::UnavailableError(
        absl::StrCat("no NCCL, which groups of GPUs need: ", reason == nullptr ? kFile : reason));
  }
  auto* nccl = new NcclLibrary;
  for (const absl::Status& found :
       {Find(file, "ncclGetUniqueId", nccl->get_unique_id),
        Find(file, "ncclCommInitRankConfig", nccl->init),
        Find(file, "ncclCommGetAsyncError", nccl->get_async_error),
        Find(file, "ncclCommFinalize", nccl->finalize),
        Find(file, "ncclCommDestroy", nccl->destroy), Find(file, "ncclCommAbort", nccl->abort),
        Find(file, "ncclAllReduce", nccl->all_reduce),
        Find(file, "ncclGetErrorString", nccl->error_string),
        Find(file, "ncclGetLastError", nccl->last_error)}) {
    if (!found.ok()) return found;
  }
  return nccl;
}

}  // namespace

absl::StatusOr<const NcclLibrary*> LoadNccl() {
  static const auto& nccl = *new absl::StatusOr<const NcclLibrary*>(Load());
  return nccl;
}

}  // namespace penstock::cuda
