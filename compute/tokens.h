// CheckTokens: token ids are checked where they enter, so that no kernel reads outside a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace penstock {

// `what`: "token" or "target". `time`: ids of a sample. `ignored`: may stand there, too.
// Errors: InvalidArgument naming the first bad id and its place.
inline absl::Status CheckTokens(absl::string_view what, absl::Span<const int32_t> ids, int64_t time,
                                int64_t vocabulary, std::optional<int32_t> ignored = std::nullopt) {
  for (size_t at = 0; at < ids.size(); ++at) {
    if ((ids[at] < 0 || ids[at] >= vocabulary) && ids[at] != ignored) {
      const auto row = static_cast<int64_t>(at);
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s %d at sample %d, time step %d of the microbatch; the vocabulary has ids 0 to %d",
          std::string(what), ids[at], row / time, row % time, vocabulary - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
