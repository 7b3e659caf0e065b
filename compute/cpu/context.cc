#include "compute/cpu/context.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

// Instruction sets are sets of bits, of which a later one holds those of its predecessors.
bool Has(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

}  // namespace

Scratch::~Scratch() {
  if (data_ != nullptr) {
    HostMemory().Free(data_, size_bytes_);
  }
}

absl::Status Scratch::Reserve(int64_t size_bytes) {
  needs_bytes_ = std::max(needs_bytes_, size_bytes);
  if (size_bytes <= size_bytes_) {
    return absl::OkStatus();
  }
  void* data = HostMemory().Allocate(size_bytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("out of memory: its passes need %d bytes of scratch memory; use a smaller "
                        "model.gpt.context, model.gpt.width or microbatch",
                        size_bytes));
  }
  if (data_ != nullptr) {
    HostMemory().Free(data_, size_bytes_);
  }
  data_ = data;
  size_bytes_ = size_bytes;
  return absl::OkStatus();
}

CpuContext::CpuContext(int thread_count, const Kernels& kernels)
    : threads(thread_count),
      kernels(kernels),
      engine(dnnl::engine::kind::cpu, 0),
      stream(engine),
      has_bf16_products(Has(dnnl::cpu_isa::avx512_core_bf16)),
      has_bf16_tiles(Has(dnnl::cpu_isa::avx512_core_amx)) {}

}  // namespace penstock
