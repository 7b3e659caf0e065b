// A model as a table for people and as JSON.
//
// Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/graph.h"

namespace penstock {

// A row for each layer, a row of sums, and what the model reads.
std::string ModelText(const ModelGraph& model);
nlohmann::ordered_json ModelJson(const ModelGraph& model);

}  // namespace penstock
