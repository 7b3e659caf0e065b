// The section of the reference page about `model.layers`: its form, and every op with its settings, in Markdown.
//
// A pure function of what the ops say about themselves (model/op.h).
#pragma once

#include <string>

namespace penstock {

std::string LayersReference();

}  // namespace penstock
