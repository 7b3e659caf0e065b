// Window: where the kernel of a convolution or pooling meets the height and width of an image.
//
// Plain values.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "model/attributes.h"
#include "model/op.h"

namespace penstock {

struct Window {
  // Output i sees inputs i * stride - before + k * dilation, for k in 0 .. kernel; what lies outside is padding.
  struct Axis {
    int64_t inputs = 0;
    int64_t kernel = 1;
    int64_t stride = 1;
    int64_t dilation = 1;
    int64_t before = 0;  // padding
    int64_t after = 0;
    int64_t outputs = 0;

    friend bool operator==(const Axis&, const Axis&) = default;
  };
  Axis height, width;

  int64_t kernel_elements() const { return height.kernel * width.kernel; }
  int64_t outputs() const { return height.outputs * width.outputs; }
  friend bool operator==(const Window&, const Window&) = default;
};

// From `kernel`, `stride` (0: the kernel), `padding` and, where the op has them, `dilation` and `same`. With `same` there
// are inputs / stride outputs, rounded up, and what that takes of padding, the larger half behind.
// Errors: InvalidArgument (`image` is not f32 [height, width, channels], a side of the kernel is below 1, the kernel is
// larger than the padded image).
absl::StatusOr<Window> WindowOf(const Attributes& attributes, const ValueType& image);

// What says the windows of an average pool: its `kernel`, `global` or `outputs`.
enum class AveragedWindows : uint8_t { kOfKernel, kGlobal, kOfOutputs };

// Of an average pool's attributes. Shape inference and the kernels of every back-end ask here, so that none of them takes
// for a kernel what another one does not.
// Errors: InvalidArgument (`kernel` or `outputs` has one number above 0 and one that is not, or not exactly one of the
// three is given).
absl::StatusOr<AveragedWindows> AveragedWindowsOf(const Attributes& attributes);

}  // namespace penstock
