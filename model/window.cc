#include "model/window.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace penstock {
namespace {

// Of a height and a width, which are given if they are above 0.
// Errors: InvalidArgument naming the attribute, if only one of them is.
absl::StatusOr<bool> AreGiven(const Attributes& attributes, absl::string_view name) {
  const std::vector<int64_t>& sizes = attributes.integers(name);
  const bool is_given = sizes[0] > 0;
  if (is_given == (sizes[1] > 0)) return is_given;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: is [%d, %d]; expected a height and a width of at least 1, or 0 for none",
                      std::string(name), sizes[0], sizes[1]));
}

}  // namespace

absl::StatusOr<Window> WindowOf(const Attributes& attributes, const ValueType& image) {
  if (image.dtype != DType::kF32 || image.dims.size() != 3) {
    return ShapesDoNotFit({&image, 1}, "f32 [height, width, channels]");
  }
  const std::vector<int64_t>& kernel = attributes.integers("kernel");
  if (std::min(kernel[0], kernel[1]) < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "kernel: is [%d, %d]; expected a height and a width of at least 1", kernel[0], kernel[1]));
  }
  const bool same = attributes.has("same") && attributes.flag("same");
  const auto axis = [&](int a) {
    Window::Axis made{.inputs = image.dims[a], .kernel = kernel[a]};
    const int64_t stride = attributes.integers("stride")[a];
    made.stride = stride == 0 ? made.kernel : stride;
    if (attributes.has("dilation")) made.dilation = attributes.integers("dilation")[a];
    const int64_t reach = made.dilation * (made.kernel - 1) + 1;
    if (same) {
      made.outputs = (made.inputs + made.stride - 1) / made.stride;
      const int64_t padding =
          std::max<int64_t>(0, (made.outputs - 1) * made.stride + reach - made.inputs);
      made.before = padding / 2;
      made.after = padding - made.before;
      return made;
    }
    made.before = made.after = attributes.integers("padding")[a];
    const int64_t room = made.inputs + made.before + made.after - reach;
    made.outputs = room < 0 ? 0 : room / made.stride + 1;
    return made;
  };
  const Window window = {axis(0), axis(1)};
  if (window.outputs() == 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a kernel of %d x %d, with its dilation, is larger than an image of %d x %d with its "
        "padding; use a smaller kernel or more padding",
        window.height.kernel, window.width.kernel, window.height.inputs, window.width.inputs));
  }
  return window;
}

absl::StatusOr<AveragedWindows> AveragedWindowsOf(const Attributes& attributes) {
  PENSTOCK_ASSIGN_OR_RETURN(const bool has_kernel, AreGiven(attributes, "kernel"));
  PENSTOCK_ASSIGN_OR_RETURN(const bool has_outputs, AreGiven(attributes, "outputs"));
  const bool is_global = attributes.flag("global");
  if ((has_kernel ? 1 : 0) + (has_outputs ? 1 : 0) + (is_global ? 1 : 0) != 1) {
    return absl::InvalidArgumentError("expected one of kernel, global and outputs");
  }
  if (has_kernel) return AveragedWindows::kOfKernel;
  return is_global ? AveragedWindows::kGlobal : AveragedWindows::kOfOutputs;
}

}  // namespace penstock
