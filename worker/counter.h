// Counter: a number that one thread changes and others read at any time.
//
// An addition is a plain load and store, not a locked instruction, because there is one writer.
#pragma once

#include <atomic>
#include <cstdint>

namespace penstock {

class Counter {
 public:
  void Add(int64_t amount) { Set(value() + amount); }
  void Set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_ = 0;
};

}  // namespace penstock
