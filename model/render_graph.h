// A model as a self-contained SVG picture: its layers as boxes in a column, in their order, and the values that they
// hand on. What a layer hands to the next one is a straight arrow; what goes further is a line beside the boxes; what is
// read from data stands at the left of its readers.
//
// A pure function.
#pragma once

#include <string>

#include "model/graph.h"

namespace penstock {

std::string RenderGraphSvg(const ModelGraph& model, const std::string& title);

// The ops of a layer in their order, for people: "linear, relu, add and 3 more".
std::string OpsOf(const ModelGraph& model, const LayerSpec& layer);

}  // namespace penstock
