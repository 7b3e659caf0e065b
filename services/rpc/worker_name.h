// Checks names of workers, which stand in logs, metrics, pages and certificates.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Errors: InvalidArgument for anything but 1 to 128 letters, digits, '-', '.' and '_'.
absl::Status CheckWorkerName(absl::string_view name);

}  // namespace penstock
