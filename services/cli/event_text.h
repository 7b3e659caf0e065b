// A job's events for `penstock logs`: as lines for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "penstock/v1/cluster.pb.h"

namespace penstock {

// "2026-07-01T14:03:05Z  step 120  loss 2.3412  rate 0.000981  gradient norm 0.81".
std::string EventText(const v1::JobEvent& event);

// Keys `sequence`, `unix_ms` and `event`, and those of the kind of event (docs/cli.md).
nlohmann::ordered_json EventJson(const v1::JobEvent& event);

}  // namespace penstock
