#include "worker/acquire.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {

absl::StatusOr<Tensor> AcquireTensor(BufferPool& pool, DType dtype, const Shape& shape) {
  Tensor tensor = pool.AcquireTensor(dtype, shape);
  if (tensor) return tensor;
  return absl::ResourceExhaustedError(absl::StrCat(
      "out of memory: a tensor ", Name(dtype), " ", shape.ToString(), " needs ",
      shape.elements() * SizeOf(dtype), " bytes; use a smaller microbatch or more stages"));
}

}  // namespace penstock
