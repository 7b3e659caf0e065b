// The files of golden/.
#pragma once

#include <string>

#include "base/check.h"
#include "base/files.h"
#include "nlohmann/json.hpp"
#include "tokenizer/tokenizer.h"

namespace penstock {

inline std::string GoldenPath(const std::string& name) {
  return std::string(PENSTOCK_SOURCE_DIR "/tests/tokenizer/golden/") + name;
}

inline std::string GoldenContent(const std::string& name) {
  const absl::StatusOr<std::string> content = RealFiles().Read(GoldenPath(name), 1 << 20);
  PENSTOCK_CHECK(content.ok());
  return *content;
}

inline nlohmann::json GoldenJson() { return nlohmann::json::parse(GoldenContent("golden.json")); }

}  // namespace penstock
