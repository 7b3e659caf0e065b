// Tensor: a shape, a type and a counted reference to device memory from a pool.
//
// Copying a tensor copies the reference. The memory goes back to its pool when the last reference
// goes, from whatever thread, so a tensor can be handed to the network and forgotten.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/dtype.h"

namespace penstock {

// Up to four dimensions, outermost first.
struct Shape {
  std::array<int64_t, 4> dims = {};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  int64_t elements() const;
  std::string ToString() const;  // "[4, 128, 192]"
  friend bool operator==(const Shape&, const Shape&) = default;
};

class BufferPool;

// A block of device memory, 64-byte aligned, counted. Thread safety: distinct handles to one block
// may be copied and dropped from different threads; the bytes are the holders' affair.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer& other);
  Buffer(Buffer&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Buffer();

  explicit operator bool() const { return block_ != nullptr; }
  void* data() const;
  int64_t size_bytes() const;
  bool shared() const;  // another handle refers to the block, too
  // From now on the pool does not give the block back to where it is from to make room for others: somebody else knows
  // its address.
  void KeepInPool() const;

  // This handle's reference as a plain pointer, for C interfaces that hand one back later: exactly one
  // Attach must follow. The handle is empty then.
  void* Detach() { return std::exchange(block_, nullptr); }
  static Buffer Attach(void* detached) { return Buffer(static_cast<Block*>(detached)); }

 private:
  friend class BufferPool;
  struct Block;
  explicit Buffer(Block* block) : block_(block) {}
  Block* block_ = nullptr;
};

struct Tensor {
  Buffer buffer;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t offset_bytes =
      0;  // into the buffer, of a view of a part of it; such a tensor is not sent

  explicit operator bool() const { return static_cast<bool>(buffer); }
  int64_t size_bytes() const { return shape.elements() * SizeOf(dtype); }
  template <typename T>
  T* data() const {
    return reinterpret_cast<T*>(static_cast<char*>(buffer.data()) + offset_bytes);
  }
};

}  // namespace penstock
