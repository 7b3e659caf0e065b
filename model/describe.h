// A layer in words, with everything that its kernels and parameters depend on: "mlp(width 64, hidden 256,
// dropout 0)". Two layers with one text are interchangeable. Checkpoints and profiles keep it.
#pragma once

#include <string>
#include <vector>

#include "model/graph.h"

namespace penstock {

std::string Describe(const ModelGraph& model, const LayerSpec& layer);

// The first layer of each shape, in the order of the model: what has to be measured of it.
std::vector<int> FirstLayersOfShapes(const ModelGraph& model);

}  // namespace penstock
