// Writes any protobuf message as YAML that ReadYamlMessage reads back.
//
// Keys are field names in the order of the .proto file; fields at their default are left out. Messages of
// plain values alone stand on one line. Numbers are the shortest that read back as the same.
#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace penstock {

// `comment`: lines to stand before the document, without '#'; may be empty. REQUIRES: strings are UTF-8.
std::string WriteYamlMessage(const google::protobuf::Message& message, const std::string& comment);

}  // namespace penstock
