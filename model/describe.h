// A layer in words, with everything that its kernels and parameters depend on: "mlp(width 64, hidden 256,
// dropout 0)". Two layers with one text are interchangeable. Checkpoints and profiles keep it.
#pragma once

#include <string>

#include "model/chain.h"

namespace penstock {

std::string Describe(const LayerConfig& config);

}  // namespace penstock
