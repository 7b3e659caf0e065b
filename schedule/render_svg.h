// A timeline as a self-contained SVG picture: a row for each worker, time from left to right.
//
// Few spans carry the number of their microbatch and a tooltip each; many are drawn as one path for
// each row and colour, so that the file stays small.
#pragma once

#include <string>

#include "schedule/timeline.h"

namespace penstock {

struct SvgOptions {
  std::string title = "Timeline";
  std::string subtitle;  // absent: length and busy share of the whole
  int width = 1200;      // in pixels, all of the picture
};

std::string RenderSvg(const Timeline& timeline, const SvgOptions& options = {});

}  // namespace penstock
