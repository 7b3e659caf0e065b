// Timelines as a grid of characters for the terminal: a row for each worker, a column for each
// slot of time. Several timelines stand under each other, each below its name and note.
//
//   worker 0 |0123...aAbBcCdD*
//
// 0-9 is a forward, a-j the gradient of the input and A-J the gradient of the weights of the
// microbatch with that last digit; * an update, + a collective, . waiting, a blank nothing at all.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "schedule/drawn_timeline.h"
#include "schedule/nice_time.h"

namespace penstock {

struct TextPictureOptions {
  int64_t slot_ns = 0;    // 0: so that the whole timeline fits into `columns`
  int32_t columns = 100;  // without the names of the workers; longer timelines are cut
  bool color = false;     // with the terminal's escape sequences
  bool legend = true;
  TimeUnit unit = TimeUnit::kSeconds;
};

std::string RenderText(absl::Span<const DrawnTimeline> drawn,
                       const TextPictureOptions& options = {});
std::string RenderText(const Timeline& timeline, const TextPictureOptions& options = {});

}  // namespace penstock
