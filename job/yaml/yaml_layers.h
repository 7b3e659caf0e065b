// Reads `model.layers` of a job file: ops in their order, with repeats, blocks and residual branches, written out as a
// graph (docs/job-file.md has the form).
//
// For yaml_message.cc alone.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "job/yaml/yaml_node.h"
#include "penstock/v1/model_graph.pb.h"

namespace penstock {

// `path`: of the key, for messages. REQUIRES: `items` is a list.
// Errors: InvalidArgument as "FILE:LINE:COLUMN: model.layers[3].conv2d: block.0.conv2d: what is wrong": an unknown op
// or key (with the nearest known one), a value of the wrong type or out of range, shapes that do not fit (with those that
// would), a name that is not there or there twice.
absl::Status ReadLayers(const YAML::Node& items, const std::string& file_name,
                        const std::string& path, v1::ModelGraph& graph);

}  // namespace penstock
