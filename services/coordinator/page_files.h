// The files that a browser loads from the coordinator: those of page/, which the build puts into the program.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace penstock {

struct EmbeddedFile {
  absl::string_view name;  // "page.js"
  absl::string_view contents;
};

const std::vector<EmbeddedFile>& PageFiles();

}  // namespace penstock
