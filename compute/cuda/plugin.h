// Loads the CUDA back-end, a shared library beside the program, where it is asked for, so that one
// program runs on machines with and without a GPU and its libraries.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/backend.h"

namespace penstock::cuda {

inline constexpr char kPluginFile[] = "libpenstock_cuda.so";
inline constexpr char kMakeBackendSymbol[] = "PenstockMakeCudaBackend";
// C++ types cross between the two, so both must be of one build: a text, compared before the first call.
inline constexpr char kVersionSymbol[] = "PenstockCudaVersion";
inline constexpr char kVersion[] = PENSTOCK_VERSION " " __VERSION__;

using MakeBackendFunction = absl::StatusOr<std::unique_ptr<Backend>>(int device,
                                                                     Repeatability repeatability);

}  // namespace penstock::cuda
