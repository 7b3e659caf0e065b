#include "compute/cpu/context.h"

#include "base/check.h"
#include "compute/cpu/kernels/best.h"

namespace penstock {
namespace {

// Instruction sets are sets of bits, of which a later one holds those of its predecessors.
bool HasBf16Products() {
  const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

}  // namespace

Scratch::~Scratch() {
  if (data_ != nullptr) {
    HostMemory().Free(data_, size_bytes_);
  }
}

void Scratch::Reserve(int64_t size_bytes) {
  if (size_bytes <= size_bytes_) {
    return;
  }
  if (data_ != nullptr) {
    HostMemory().Free(data_, size_bytes_);
  }
  data_ = HostMemory().Allocate(size_bytes);
  PENSTOCK_CHECK(data_ != nullptr);
  size_bytes_ = size_bytes;
}

CpuContext::CpuContext(int thread_count)
    : threads(thread_count),
      kernels(*SupportedKernels().front()),
      engine(dnnl::engine::kind::cpu, 0),
      stream(engine),
      has_bf16_products(HasBf16Products()) {}

}  // namespace penstock
