// CheckIds: whole numbers of samples are checked where they enter, so that no kernel reads outside a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "model/graph.h"

namespace penstock {

// `ids`: of all samples of a microbatch, one sample after another. `ignored`: may stand there, too.
// REQUIRES: port.ids > 0.
// Errors: InvalidArgument naming the port, the first bad id, its place and what would do.
inline absl::Status CheckIds(const Port& port, absl::Span<const int32_t> ids,
                             std::optional<int32_t> ignored = std::nullopt) {
  const int64_t of_sample = port.type.elements();
  for (size_t at = 0; at < ids.size(); ++at) {
    const int32_t id = ids[at];
    if ((id >= 0 && id < port.ids) || id == ignored) continue;
    const int64_t sample = static_cast<int64_t>(at) / of_sample;
    const int64_t element = static_cast<int64_t>(at) % of_sample;
    std::string place = absl::StrCat("sample ", sample);
    // A label or a length is the only one of its sample.
    if (port.type.dims.size() == 1) absl::StrAppend(&place, ", time step ", element);
    if (port.type.dims.size() > 1) absl::StrAppend(&place, ", element ", element);
    return absl::InvalidArgumentError(absl::StrCat(
        "input ", port.name, " holds ", id, " at ", place,
        " of the microbatch; its ids or the ops that read it allow 0 to ", port.ids - 1,
        ignored.has_value() ? absl::StrCat(", and the loss ignores ", *ignored) : ""));
  }
  return absl::OkStatus();
}

}  // namespace penstock
