// A layer in words, with everything that its kernels and parameters depend on: "mlp(width 64, hidden 256,
// dropout 0)".
#pragma once

#include <string>
#include <vector>

#include "model/graph.h"

namespace penstock {

// Two layers with one text are interchangeable. Checkpoints keep it.
std::string Describe(const ModelGraph& model, const LayerSpec& layer);
// Says the same, which inputs need no gradient, so that the layer computes none for them, and which parameters are frozen.
// Two layers with one text also do the same work. Profiles keep it.
std::string DescribeWork(const ModelGraph& model, const LayerSpec& layer);

// The first layer of each shape, in the order of the model: what has to be measured of it. A shape is the layers with
// one text of DescribeWork.
std::vector<int> FirstLayersOfShapes(const ModelGraph& model);

}  // namespace penstock
