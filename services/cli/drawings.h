// Drawings: a timeline as the files and pictures a user asks for; --svg, --trace, --text of `simulate`,
// `timeline` and `schedule show`.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedule/drawn_timeline.h"
#include "schedule/nice_time.h"
#include "schedule/simulate.h"
#include "services/cli/console.h"

namespace penstock {

struct DrawingOptions {
  std::string svg_path;    // empty: none
  std::string trace_path;  // empty: none
  bool text = false;       // on the terminal

  bool any() const { return text || !svg_path.empty() || !trace_path.empty(); }
};

// Declares --svg, --text, and the trace under the names `trace_flags` ("-o,--trace"). Returns --text,
// which prints a picture where --json would print its document.
CLI::Option* AddDrawingOptions(CLI::App& app, const std::string& trace_flags,
                               DrawingOptions& options);

// Checks that Draw could write its files now, for callers who draw after long work.
// Errors: those of the file system, naming the path.
absl::Status CheckCanDraw(const DrawingOptions& options);

// Writes what is asked for; `title` stands above the SVG and in the trace. Notes the paths on `console.err`.
// Errors: those of the file system, naming the path.
absl::Status Draw(absl::Span<const DrawnTimeline> drawn, const std::string& title,
                  const DrawingOptions& options, Console& console,
                  TimeUnit unit = TimeUnit::kSeconds);

// A drawing of a simulation has at most this many spans.
inline constexpr int64_t kDrawnSpansMax = 200'000;
// Draws a simulation of `schedule`, whose times have no unit, and says so if it draws only the beginning.
absl::Status Draw(const SimulationResult& result, const Schedule& schedule,
                  const DrawingOptions& options, Console& console);

// Checks that WriteTextFile can write `path`. Errors: those of the file system, naming the path.
absl::Status CheckCanWrite(const std::string& path);

// Writes a file, replacing an old one. Errors: PermissionDenied, NotFound and the like, with path.
absl::Status WriteTextFile(const std::string& path, const std::string& text);

}  // namespace penstock
