#include "model/bundle.h"

namespace penstock {
namespace {

constexpr int64_t kAlignmentElements = 16;

template <typename Predicate>
Bundle BundleOf(const ModelGraph& model, int layer, int64_t samples, Predicate belongs) {
  Bundle bundle;
  if (layer <= 0 || layer >= model.size()) return bundle;
  const int cut = model.layers[layer].first_node;
  std::vector<bool> is_read(model.values(), false);
  for (int node = cut; node < static_cast<int>(model.nodes.size()); ++node) {
    for (const int input : model.nodes[node].inputs) is_read[input] = true;
  }
  for (int node = 0; node < cut; ++node) {
    const int value = model.ValueOf(node);
    if (!is_read[value] || !belongs(value)) continue;
    const int64_t offset =
        (bundle.elements + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
    bundle.parts.push_back({value, offset});
    bundle.elements = offset + samples * model.TypeOf(value).elements();
  }
  return bundle;
}

}  // namespace

Bundle ActivationsAt(const ModelGraph& model, int layer, int64_t samples) {
  return BundleOf(model, layer, samples, [](int) { return true; });
}

Bundle GradientsAt(const ModelGraph& model, int layer, int64_t samples) {
  Bundle bundle =
      BundleOf(model, layer, samples, [&](int value) { return model.NeedsGradient(value); });
  if (bundle.empty() && layer > 0 && layer < model.size()) bundle.elements = 1;
  return bundle;
}

}  // namespace penstock
