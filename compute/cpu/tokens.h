// CheckTokens: token ids are checked where they enter, so that no kernel reads outside a table.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace penstock {

// `what`: "token" or "target". Errors: InvalidArgument naming the first bad id and its place.
inline absl::Status CheckTokens(const char* what, const int32_t* ids, int64_t rows, int64_t time,
                                int64_t vocabulary) {
  for (int64_t row = 0; row < rows; ++row) {
    if (ids[row] < 0 || ids[row] >= vocabulary) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s %d at sample %d, time step %d of the microbatch; the vocabulary has ids 0 to %d",
          what, ids[row], row / time, row % time, vocabulary - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
