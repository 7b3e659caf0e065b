// What the readers of YAML say about a node of a document: where it stands, and what it is.
//
// For the files of this folder alone, which are the only ones that see yaml-cpp.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace penstock {

// "FILE:LINE:COLUMN", or the file alone if the mark says nothing.
std::string PlaceOf(const std::string& file_name, const YAML::Mark& mark);

// Returns whether the scalar stood in quotes, so that it is text whatever it looks like.
bool IsQuoted(const YAML::Node& node);

// For messages: "nothing", "a list", "the text \"400\"", "400".
std::string DescribeNode(const YAML::Node& node);

}  // namespace penstock
