#include "compute/cpu/context.h"

#include "base/check.h"
#include "compute/cpu/kernels/best.h"

namespace penstock {
namespace {

bool HasBf16Products() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_amx:
      return true;
    default:
      return false;
  }
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
