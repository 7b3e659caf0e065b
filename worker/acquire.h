// A tensor from a pool, or an error that says how much memory was asked for.
#pragma once

#include "absl/status/statusor.h"
#include "compute/buffer_pool.h"

namespace penstock {

// Errors: ResourceExhausted.
absl::StatusOr<Tensor> AcquireTensor(BufferPool& pool, DType dtype, const Shape& shape);

}  // namespace penstock
