#include "model/window.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace penstock {

absl::StatusOr<Window> WindowOf(const Attributes& attributes, const ValueType& image) {
  if (image.dtype != DType::kF32 || image.dims.size() != 3) {
    return ShapesDoNotFit({&image, 1}, "f32 [height, width, channels]");
  }
  const bool same = attributes.has("same") && attributes.flag("same");
  const auto axis = [&](int a) {
    Window::Axis made{.inputs = image.dims[a], .kernel = attributes.integers("kernel")[a]};
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

}  // namespace penstock
