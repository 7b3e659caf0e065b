// Reads YAML into any protobuf message by walking the message's own description.
//
// Keys are field names, sub-messages are mappings, repeated fields are lists, enum values are named
// as in the .proto file; `auto` for an optional number or truth value is as if the key were not there. A document
// has at most kYamlBytesMax bytes and kYamlDepthMax levels; anchors and aliases are refused, so that a small text
// cannot stand for a large tree.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace penstock {

inline constexpr int64_t kYamlBytesMax = int64_t{1} << 20;
inline constexpr int kYamlDepthMax = 16;

// Where each key stood: "training.steps" -> "job.yaml:12:3", lines and columns from 1.
using YamlPositions = std::map<std::string, std::string>;

// Sets the fields of `message` that `text` names; notes their places in `positions`. `file_name` is
// for messages. A key may have a name of the version before (job/keys/key_options.h): `notes`, if somebody asks, then has
// a line for the user.
//
// Errors: InvalidArgument as "FILE:LINE:COLUMN: KEY: what is wrong": not YAML, not UTF-8, too large
// or deep, unknown key (with the nearest known one), wrong type, out of range, duplicate key, two
// kinds of one choice.
absl::Status ReadYamlMessage(absl::string_view text, const std::string& file_name,
                             google::protobuf::Message& message, YamlPositions& positions,
                             std::vector<std::string>* notes = nullptr);

// Sets one field to what it would be if `value` stood in a file, such as "0.9"; adds it to a list. Errors:
// InvalidArgument as above.
absl::Status SetFromYaml(absl::string_view value, const google::protobuf::FieldDescriptor& field,
                         google::protobuf::Message& message);

// Puts the place of the key that `error` is about in front of it: messages of checks start with "KEY: ".
// For a key that is not there it is the place of the mapping that lacks it.
absl::Status WithPlace(const absl::Status& error, const std::string& file_name,
                       const YamlPositions& positions);

// The text of such a file. Errors: InvalidArgument (too large, a directory, a pipe), NotFound,
// PermissionDenied.
absl::StatusOr<std::string> ReadYamlFile(const std::string& path);

}  // namespace penstock
