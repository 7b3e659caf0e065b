// Loading a YAML document from a text that may be hostile: limits are checked before a tree is made.
//
// For yaml_message.cc alone.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// The only document of `text`, within the limits of yaml_message.h. May throw YAML::Exception.
// Errors: InvalidArgument (not UTF-8, too large, too deep, anchors, aliases, empty, several
// documents).
absl::StatusOr<YAML::Node> LoadYamlDocument(absl::string_view text, const std::string& file_name);

}  // namespace penstock
