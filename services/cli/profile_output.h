// Shows profiles as tables and as JSON.
//
// Plain functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "penstock/v1/profile.pb.h"

namespace penstock {

std::string ProfileText(const v1::ModelProfile& profile);
nlohmann::ordered_json ProfileJson(const v1::ModelProfile& profile);

std::string ProfileText(const v1::ClusterProfile& profile);
nlohmann::ordered_json ProfileJson(const v1::ClusterProfile& profile);

}  // namespace penstock
