#include "services/cli/drawings.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "schedule/render_svg.h"
#include "schedule/render_text.h"
#include "schedule/render_trace.h"

namespace penstock {

absl::Status CheckCanWrite(const std::string& path) {
  std::error_code error;
  const std::filesystem::path file(path);
  if (std::filesystem::is_directory(file, error)) {
    return absl::ErrnoToStatus(EISDIR, absl::StrCat("cannot write ", path));
  }
  // A new file needs its directory; the slash at the end says that it must be one.
  const std::filesystem::path needed = std::filesystem::exists(file, error)
                                           ? file
                                           : std::filesystem::absolute(file).parent_path() / "";
  if (access(needed.c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

CLI::Option* AddDrawingOptions(CLI::App& app, const std::string& trace_flags,
                               DrawingOptions& options) {
  app.add_option("--svg", options.svg_path, "Draw the timeline into this file")->type_name("FILE");
  app.add_option(trace_flags, options.trace_path,
                 "Write the timeline for ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE.json");
  return app.add_flag("--text", options.text, "Draw the timeline with characters");
}

absl::Status WriteTextFile(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status CheckCanDraw(const DrawingOptions& options) {
  for (const std::string& path : {options.svg_path, options.trace_path}) {
    if (!path.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(path));
  }
  return absl::OkStatus();
}

absl::Status Draw(absl::Span<const DrawnTimeline> drawn, const std::string& title,
                  const DrawingOptions& options, Console& console, TimeUnit unit) {
  if (!options.svg_path.empty()) {
    PENSTOCK_RETURN_IF_ERROR(
        WriteTextFile(options.svg_path, RenderSvg(drawn, {.title = title, .unit = unit})));
    console.err << "wrote " << options.svg_path << "\n";
  }
  if (!options.trace_path.empty()) {
    PENSTOCK_RETURN_IF_ERROR(WriteTextFile(options.trace_path, RenderTrace(drawn, title)));
    console.err << "wrote " << options.trace_path << " (open it in ui.perfetto.dev)\n";
  }
  if (options.text) {
    constexpr int32_t kBesideNames = 4;
    const auto names = static_cast<int32_t>(RowNameLength(drawn)) + kBesideNames;
    console.out << RenderText(drawn,
                              {.columns = std::max(20, console.columns - names), .unit = unit});
  }
  return absl::OkStatus();
}

absl::Status Draw(const SimulationResult& result, const Schedule& schedule,
                  const DrawingOptions& options, Console& console) {
  if (options.any() && result.timeline_cut_s.has_value()) {
    console.err << absl::StrFormat("only the first %g of %g are drawn\n", *result.timeline_cut_s,
                                   result.makespan_s);
  }
  return Draw({{.timeline = &result.timeline, .topology = &schedule.topology}}, schedule.name,
              options, console, TimeUnit::kNone);
}

}  // namespace penstock
