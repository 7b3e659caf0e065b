// A small model with everything that a chain has not: skips over several layers, values with several readers, two
// towers with ports of their own, values that need no gradient, views, and weights that several nodes share.
#pragma once

#include "model/graph.h"

namespace penstock {

struct SkipModelOptions {
  bool tied = true;  // the last layer reads the table of the first
  double dropout = 0.1;
};

ModelGraph SkipModel(const SkipModelOptions& options);

}  // namespace penstock
