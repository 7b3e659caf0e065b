// What holds for every file that is a message in YAML.
#pragma once

#include <memory>
#include <string>

#include "google/protobuf/message.h"
#include "job/yaml/yaml_message.h"
#include "job/yaml/yaml_writer.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {

// Checks that what is written of `message`, which was read from YAML, reads back as what is written. (YAML has no way to
// write some letters, which become others at the first time.) `empty`: a message of the type.
inline void CheckYamlRoundTrip(const google::protobuf::Message& message,
                               const google::protobuf::Message& empty) {
  const std::string written = WriteYamlMessage(message, "");
  if (static_cast<int64_t>(written.size()) > kYamlBytesMax) return;
  const std::unique_ptr<google::protobuf::Message> read(empty.New());
  YamlPositions positions;
  PENSTOCK_CHECK(ReadYamlMessage(written, "again.yaml", *read, positions).ok());
  PENSTOCK_CHECK(WriteYamlMessage(*read, "") == written);
}

}  // namespace penstock
