// What cuBLASLt computes, by its documentation: column-major matrices, descriptions by attributes, epilogues, fp8 with scales.
// One element at a time on the host, so that tests can give MatrixProduct numbers without a GPU.
//
// Thread safety: none.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace penstock::fake_cuda {

struct PlayedLayout {
  cudaDataType_t type;
  int64_t rows, columns, stride;  // column-major, as cuBLASLt has them
};

struct PlayedDescription {
  std::map<int, std::vector<char>> attributes;

  template <typename T>
  T Get(cublasLtMatmulDescAttributes_t attribute, T otherwise) const {
    const auto found = attributes.find(attribute);
    if (found == attributes.end()) return otherwise;
    T value = otherwise;
    std::memcpy(&value, found->second.data(), sizeof(T));
    return value;
  }
};

struct PlayedOperands {
  float alpha, beta;
  const void *a, *b, *c;
  void* d;
  PlayedLayout a_layout, b_layout, d_layout;  // C's is D's
};

// Whether an H200 has a kernel for it. One of fp8 takes a transposed A, a B that is not, sides in multiples of 16, and E5M2 for
// one operand at most.
bool IsSupported(const PlayedDescription& description, const PlayedLayout& a, const PlayedLayout& b,
                 const PlayedLayout& d);

void Multiply(const PlayedDescription& description, const PlayedOperands& operands);

}  // namespace penstock::fake_cuda
