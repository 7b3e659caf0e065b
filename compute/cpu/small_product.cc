#include "compute/cpu/small_product.h"

#include <dnnl.h>

#include "base/check.h"
#include "compute/cpu/threads.h"

namespace penstock {
namespace {

void Multiply(const SmallShape& shape, float factor, char transpose_left, const float* left,
              int64_t left_stride, char transpose_right, const float* right, int64_t right_stride,
              float keep, MutableMatrix result) {
  SetOneDnnThreads(1);
  const dnnl_status_t status =
      dnnl_sgemm(transpose_left, transpose_right, shape.rows, shape.columns, shape.inner, factor,
                 left, left_stride, right, right_stride, keep, result.data, result.stride);
  PENSTOCK_CHECK(status == dnnl_success);
}

}  // namespace

void SmallProduct(const SmallShape& shape, float factor, ConstMatrix left, ConstMatrix right,
                  float keep, MutableMatrix result) {
  Multiply(shape, factor, 'N', left.data, left.stride, 'N', right.data, right.stride, keep, result);
}
void SmallProduct(const SmallShape& shape, float factor, ConstMatrix left, Transposed right,
                  float keep, MutableMatrix result) {
  Multiply(shape, factor, 'N', left.data, left.stride, 'T', right.data, right.stride, keep, result);
}
void SmallProduct(const SmallShape& shape, float factor, Transposed left, ConstMatrix right,
                  float keep, MutableMatrix result) {
  Multiply(shape, factor, 'T', left.data, left.stride, 'N', right.data, right.stride, keep, result);
}

}  // namespace penstock
