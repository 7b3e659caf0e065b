// Models in manifests, as JSON of the form of the key `model` of a job file.
//
// For manifest.cc.
#pragma once

#include <optional>

#include "checkpoint/manifest.h"
#include "nlohmann/json.hpp"

namespace penstock {

nlohmann::json ModelToJson(const StoredModel& model);

// None if this version does not know the kind of model, or cannot build the graph. Throws what the JSON library throws
// for a missing key or another type.
std::optional<StoredModel> ModelFromJson(const nlohmann::json& json);

}  // namespace penstock
