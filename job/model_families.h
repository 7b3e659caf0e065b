// The families of models that a job can name by numbers: model.vgg, model.resnet, ...
//
// A family is a message in job.proto, a builder in model/families/ and a row here.
//
// Plain functions without I/O.
#pragma once

#include "absl/status/statusor.h"
#include "model/graph.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// The model of a family. REQUIRES: `spec` names one, and has its defaults filled in.
// Errors: InvalidArgument starting with the key: "model.resnet.depth: is 19; expected one of 18, 34, ...".
absl::StatusOr<ModelGraph> BuildFamily(const v1::ModelSpec& spec);

}  // namespace penstock
