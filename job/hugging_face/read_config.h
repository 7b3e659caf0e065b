// config.json of a directory of Hugging Face's transformers, as the family and the numbers of a job.
//
// A key that would change a number, and that nothing here computes, is refused by its name: another activation, YaRN, biases
// where there are none, quantized weights. Keys that transformers itself does not read for a model of that type are ignored.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

inline constexpr char kHuggingFaceConfigName[] = "config.json";

// The model that `config`, the text of a config.json, describes, as `spec` asks for it: a family with its numbers and, where
// it is not to start with sampled weights, `pretrained` without digests. A pure function.
// Errors: InvalidArgument naming the key of config.json, what it is and what is supported.
absl::StatusOr<v1::ModelSpec> ModelOfHuggingFace(absl::string_view config,
                                                 const v1::HuggingFaceSpec& spec);

// Replaces the directory in `model`, if it names one, by the family that its config.json describes. Relative paths start
// from `root`; one of a directory that was put (base/put_path.h) is for `files` as it is.
// Errors, which begin with "model.hugging_face.directory": those of ModelOfHuggingFace and of `files`.
absl::Status ReadHuggingFaceConfig(FileReader& files, const std::string& root,
                                   v1::ModelSpec& model);

}  // namespace penstock
