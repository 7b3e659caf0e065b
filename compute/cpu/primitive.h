// Primitive: a oneDNN primitive of fixed shapes, made once, with a handle for each of its operands.
#pragma once

#include <array>
#include <dnnl.hpp>
#include <initializer_list>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compute/cpu/context.h"

namespace penstock {

class Primitive {
 public:
  struct Operand {
    int argument;  // DNNL_ARG_SRC
    dnnl::memory::desc description;
  };
  static constexpr int kOperandsMax = 5;

  Primitive() = default;
  // Whose memory a primitive works in: the context's, which it reserves, or what a caller gives each run.
  enum class ScratchOf { kContext, kCaller };

  // REQUIRES: `context` outlives it; no pass is running; inside WithOneDnn. `P`: dnnl::convolution_forward, made with
  // PrimitiveAttributes().
  // Errors: ResourceExhausted (no scratch memory).
  template <typename P>
  static absl::StatusOr<Primitive> Create(CpuContext& context,
                                          const typename P::primitive_desc& description,
                                          std::initializer_list<Operand> operands,
                                          ScratchOf scratch = ScratchOf::kContext) {
    return Create(context, P(description), description.scratchpad_desc(), operands, scratch);
  }

  int64_t scratch_bytes() const;

  // `data`: by operand. `scratch`: scratch_bytes() of the caller's; null: the context's.
  void Run(std::initializer_list<const void*> data, void* scratch = nullptr) const;

 private:
  static absl::StatusOr<Primitive> Create(CpuContext& context, const dnnl::primitive& primitive,
                                          const dnnl::memory::desc& scratch,
                                          std::initializer_list<Operand> operands, ScratchOf of);

  CpuContext* context_ = nullptr;
  dnnl::primitive primitive_;
  int operands_ = 0;
  // Of the operands, pointed at the data of each run, and of the scratch memory.
  std::array<dnnl::memory, kOperandsMax + 1> handles_;
  std::array<int, kOperandsMax + 1> arguments_ = {};
};

// Describes a primitive by its operands: oneDNN 3 takes them at once, oneDNN 2 makes a description of the operation first.
// `forward`: that of the forward, for a backward.
template <typename P, typename... Operands>
typename P::primitive_desc DescribeForward(const CpuContext& context,
                                           const dnnl::primitive_attr& attributes,
                                           const Operands&... operands) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(context.engine, operands..., attributes);
#else
  return typename P::primitive_desc(typename P::desc(operands...), attributes, context.engine);
#endif
}
template <typename P, typename Forward, typename... Operands>
typename P::primitive_desc DescribeBackward(const CpuContext& context,
                                            const dnnl::primitive_attr& attributes,
                                            const Forward& forward, const Operands&... operands) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(context.engine, operands..., forward, attributes);
#else
  return typename P::primitive_desc(typename P::desc(operands...), attributes, context.engine,
                                    forward);
#endif
}
// Pooling with dilations, which oneDNN 2 has under another name.
#if DNNL_VERSION_MAJOR >= 3
using PoolingForward = dnnl::pooling_forward;
using PoolingBackward = dnnl::pooling_backward;
#else
using PoolingForward = dnnl::pooling_v2_forward;
using PoolingBackward = dnnl::pooling_v2_backward;
#endif

// Scratch memory comes from the context. `accumulates`: the result is added to what is there.
dnnl::primitive_attr PrimitiveAttributes(bool accumulates = false);

// Of an exception of oneDNN, in words. Errors: Unimplemented (oneDNN has no such primitive on this machine),
// ResourceExhausted (no memory for it), Internal (it failed).
absl::Status OneDnnError(absl::string_view what, const dnnl::error& error);

// What `make` returns, which makes primitives. Errors: its own, and OneDnnError's.
template <typename Make>
auto WithOneDnn(const CpuContext& context, absl::string_view what, Make make) -> decltype(make()) {
  // Some kernels are chosen by the number of threads.
  SetOneDnnThreads(context.threads.count());
  try {
    return make();
  } catch (const dnnl::error& error) {
    return OneDnnError(what, error);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory"));
  }
}

}  // namespace penstock
