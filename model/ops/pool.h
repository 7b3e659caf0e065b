// What the poolings share.
#pragma once

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/op.h"
#include "model/window.h"

namespace penstock::ops {

inline constexpr AttributeSpec kPoolStride = {
    .name = "stride",
    .kind = AttributeKind::kIntegers,
    .help = "the steps between windows, down and across; 0: as the kernel",
    .otherwise = "0",
    .min = 0,
    .sizes = 2};
inline constexpr AttributeSpec kPoolPadding = {
    .name = "padding",
    .kind = AttributeKind::kIntegers,
    .help = "around the image, above and below, left and right; at most half of the kernel",
    .otherwise = "0",
    .min = 0,
    .sizes = 2};

// With more padding a window might see nothing else.
inline absl::StatusOr<Window> PoolWindow(const OpArguments& a) {
  PENSTOCK_ASSIGN_OR_RETURN(const Window window, WindowOf(a.attributes, a.inputs[0]));
  for (const Window::Axis& axis : {window.height, window.width}) {
    if (2 * axis.before <= axis.kernel) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "padding: is ", axis.before, "; expected at most half of the kernel's ", axis.kernel));
  }
  return window;
}

inline OpResult Pooled(const OpArguments& a, const Window& window) {
  return {.output = {DType::kF32,
                     {window.height.outputs, window.width.outputs, a.inputs[0].dims.back()}}};
}

}  // namespace penstock::ops
