#include "model/chain.h"

#include <functional>
#include <numeric>

namespace penstock {

int64_t ParameterSpec::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t LayerSpec::parameter_count() const {
  int64_t count = 0;
  for (const ParameterSpec& parameter : parameters) {
    count += parameter.size();
  }
  return count;
}

int64_t Chain::parameter_count() const {
  int64_t count = 0;
  for (const LayerSpec& layer : layers) {
    count += layer.parameter_count();
  }
  if (tied()) {
    count -= vocabulary * width;
  }
  return count;
}

bool Chain::tied() const {
  if (layers.empty()) {
    return false;
  }
  const auto* head = std::get_if<HeadLayer>(&layers.back().config);
  return head != nullptr && head->tied;
}

}  // namespace penstock
