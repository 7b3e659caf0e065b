// BlockLayout: places arrays one after the other in a block of memory, each at 64 bytes.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace penstock {

// Where an array begins in a block: the block's base is added when it is used.
template <typename T>
class Place {
 public:
  Place() = default;
  explicit Place(int64_t offset_bytes) : offset_bytes_(offset_bytes) {}
  T* in(void* block) const {
    return reinterpret_cast<T*>(static_cast<char*>(block) + offset_bytes_);
  }

 private:
  int64_t offset_bytes_ = 0;
};

class BlockLayout {
 public:
  // REQUIRES: the block's size in bytes fits 64 bits, as those of ops within the limits of models do (model/op.h,
  // kValueElementsMax).
  template <typename T>
  Place<T> Add(int64_t count) {
    const Place<T> place(size_bytes_);
    int64_t array_bytes = 0;
    PENSTOCK_CHECK(count >= 0 && !__builtin_mul_overflow(count, sizeof(T), &array_bytes));
    PENSTOCK_CHECK(!__builtin_add_overflow(size_bytes_, array_bytes, &size_bytes_));
    PENSTOCK_CHECK(!__builtin_add_overflow(size_bytes_, 63, &size_bytes_));
    size_bytes_ = size_bytes_ / 64 * 64;
    return place;
  }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  int64_t size_bytes_ = 0;
};

}  // namespace penstock
