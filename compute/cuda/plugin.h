// How the CUDA back-end is reached: a shared library beside the program, loaded where it is asked for, so
// that one program runs on machines with and without a GPU and its libraries.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/backend.h"

namespace penstock::cuda {

inline constexpr char kPluginFile[] = "libpenstock_cuda.so";
inline constexpr char kMakeBackendSymbol[] = "PenstockMakeCudaBackend";

using MakeBackendFunction = absl::StatusOr<std::unique_ptr<Backend>>(int device);

}  // namespace penstock::cuda
