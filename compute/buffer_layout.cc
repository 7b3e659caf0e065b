#include "compute/buffer_layout.h"

namespace penstock {

BufferLayout LayOutBuffers(const ModelGraph& model, LayerRange layers, int64_t step_samples) {
  constexpr int64_t kAlignmentFloats = 16;
  const int first_node = model.layers[layers.first].first_node;
  const int end_node = model.layers[layers.end() - 1].end_node();
  BufferLayout layout;
  for (int n = first_node; n < end_node; ++n) {
    layout.offsets.emplace_back(model.nodes[n].buffers.size(), -1);
  }
  for (const auto kind : {BufferSpec::Kind::kStatistic, BufferSpec::Kind::kCarried}) {
    const int64_t rows = kind == BufferSpec::Kind::kCarried ? step_samples : 1;
    for (int n = first_node; n < end_node; ++n) {
      const std::vector<BufferSpec>& buffers = model.nodes[n].buffers;
      for (size_t b = 0; b < buffers.size(); ++b) {
        if (buffers[b].kind != kind || !IsKept(buffers[b], step_samples)) continue;
        layout.offsets[n - first_node][b] = layout.count;
        const int64_t floats = rows * buffers[b].size();
        layout.count += (floats + kAlignmentFloats - 1) / kAlignmentFloats * kAlignmentFloats;
      }
    }
    if (kind == BufferSpec::Kind::kStatistic) layout.statistics = layout.count;
  }
  return layout;
}

}  // namespace penstock
