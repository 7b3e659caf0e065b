// SmallProduct: C = factor A B + keep C on parts of larger matrices, on the calling thread alone
// (oneDNN's sgemm). For the products inside attention, whose sizes change from block to block.
#pragma once

#include <cstdint>

namespace penstock {

struct SmallShape {
  int64_t rows, columns, inner;
};

// Row-major, rows `stride` floats apart.
struct ConstMatrix {
  const float* data;
  int64_t stride;
};
struct MutableMatrix {
  float* data;
  int64_t stride;
};
// The transpose of what is stored.
struct Transposed {
  const float* data;
  int64_t stride;
};

void SmallProduct(const SmallShape& shape, float factor, ConstMatrix left, ConstMatrix right,
                  float keep, MutableMatrix result);
void SmallProduct(const SmallShape& shape, float factor, ConstMatrix left, Transposed right,
                  float keep, MutableMatrix result);
void SmallProduct(const SmallShape& shape, float factor, Transposed left, ConstMatrix right,
                  float keep, MutableMatrix result);

}  // namespace penstock
