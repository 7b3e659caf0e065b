// The ops of the CPU back-end, one file each in ops/.
//
// Errors: those of MatrixProduct::Create, and ResourceExhausted (no scratch memory).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/cpu/context.h"
#include "compute/op_kernels.h"
#include "model/ops/list.h"

namespace penstock::cpu {

using MadeKernels = absl::StatusOr<std::unique_ptr<OpKernels>>;

#define PENSTOCK_DECLARE_CPU_OP(Name) \
  MadeKernels Make##Name(CpuContext& context, const KernelSpec& spec);
PENSTOCK_OPS(PENSTOCK_DECLARE_CPU_OP)
PENSTOCK_EVALUATION_OPS(PENSTOCK_DECLARE_CPU_OP)
#undef PENSTOCK_DECLARE_CPU_OP

}  // namespace penstock::cpu
