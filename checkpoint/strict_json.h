// Strict JSON: what a careful reader of files from outside accepts.
//
// Unlike most JSON readers it refuses an object that has one key twice (which readers resolve
// differently, so that two programs would see two contents) and it has limits. Used for safetensors
// headers and manifests.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace penstock {

struct JsonLimits {
  int depth_max = 8;
  int64_t values_max = 1 << 20;  // of any kind, all levels together
};

// Errors: InvalidArgument with the position or the key ("key \"a\" is there twice").
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, const JsonLimits& limits);

// The whole number in `value`, and those in a list of such; the JSON library itself would cut off fractions, and what does
// not fit. Throw std::out_of_range, as that library does where a key is missing.
int64_t WholeNumber(const nlohmann::json& value);
int32_t SmallWholeNumber(const nlohmann::json& value);
std::vector<int64_t> WholeNumbers(const nlohmann::json& list);
std::vector<int32_t> SmallWholeNumbers(const nlohmann::json& list);

}  // namespace penstock
