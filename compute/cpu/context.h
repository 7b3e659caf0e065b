// CpuContext: shared by the layers of a CPU back-end: threads, kernels, oneDNN engine, scratch memory.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <utility>

#include "absl/status/status.h"
#include "compute/buffer_pool.h"
#include "compute/cpu/kernels/kernels.h"
#include "compute/cpu/threads.h"

namespace penstock {

// Memory whose content lives no longer than one pass of one layer, so that all layers share it. It
// grows while layers are made and never afterwards.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Makes data() at least `size_bytes` large. REQUIRES: no pass is running.
  // Errors: ResourceExhausted; what there was stays.
  absl::Status Reserve(int64_t size_bytes);
  void* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  // The most that was reserved since the last call.
  int64_t TakeNeeds() { return std::exchange(needs_bytes_, 0); }

 private:
  void* data_ = nullptr;
  int64_t size_bytes_ = 0;
  int64_t needs_bytes_ = 0;
};

struct CpuContext {
  // REQUIRES: this machine has the kernels' instruction set.
  CpuContext(int thread_count, const Kernels& kernels);

  Threads threads;
  const Kernels& kernels;
  dnnl::engine engine;
  dnnl::stream stream;
  bool has_bf16_products;   // in hardware
  bool has_bf16_tiles;      // the same by AMX
  Scratch layer_scratch;    // of the pass that runs
  Scratch product_scratch;  // of the oneDNN primitive that runs inside it
};

}  // namespace penstock
