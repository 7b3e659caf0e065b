// config.json of a model, as Hugging Face's transformers reads it: the way back of job/hugging_face/read_config.h.
//
// Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "penstock/v1/job.pb.h"

namespace penstock {

// `family`: a GPT, Llama or BERT with all its numbers. `source`: what is known besides, by the keys of a config.json, such as
// that of the directory that the model came from: special tokens, labels and the longest context are taken; null: nothing is.
// Errors: Unimplemented (transformers has no class of these options).
absl::StatusOr<nlohmann::ordered_json> HuggingFaceConfig(const v1::ModelSpec& family,
                                                         const nlohmann::json& source);

// The name that a parameter has there: "transformer.h.0.ln_1.weight".
std::string HuggingFaceName(const v1::ModelSpec& family, absl::string_view parameter);

}  // namespace penstock
