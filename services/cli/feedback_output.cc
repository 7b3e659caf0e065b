#include "services/cli/feedback_output.h"

#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/drift.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

using Format = std::function<std::string(double)>;

std::string Ms(double seconds) { return absl::StrFormat("%.1f ms", seconds * 1e3); }
std::string Bytes(double bytes) { return FormatBytes(static_cast<int64_t>(bytes)); }

void AddRow(const std::string& what, std::optional<double> predicted,
            std::optional<double> measured, const Format& format, Table& table) {
  if (!predicted.has_value() && !measured.has_value()) return;
  const bool both = predicted.has_value() && measured.has_value() && *predicted > 0.0;
  table.AddRow({what, predicted.has_value() ? format(*predicted) : "-",
                measured.has_value() ? format(*measured) : "-",
                both ? absl::StrFormat("%+.1f %%", DriftOf(*predicted, *measured) * 100.0) : "-"});
}

std::optional<double> StepOf(const v1::RunUse& use) {
  return use.has_step_seconds() ? std::optional(use.step_seconds()) : std::nullopt;
}
std::optional<double> MemoryOf(const v1::WorkerUse& use) {
  return use.has_memory_bytes() ? std::optional(static_cast<double>(use.memory_bytes()))
                                : std::nullopt;
}
std::optional<double> SentOf(const v1::WorkerUse& use) {
  return use.has_sent_bytes_per_step() ? std::optional(use.sent_bytes_per_step()) : std::nullopt;
}

}  // namespace

std::string FeedbackText(const v1::Feedback& feedback) {
  if (!feedback.has_predicted()) return "";
  using Align = Table::Align;
  Table table({{""},
               {"PREDICTED", Align::kRight},
               {"MEASURED", Align::kRight},
               {"DIFFERENCE", Align::kRight}});
  const v1::RunUse& predicted = feedback.predicted();
  const v1::RunUse& measured = feedback.measured();
  AddRow("step", StepOf(predicted), StepOf(measured), Ms, table);
  for (int i = 0; i < predicted.workers_size() && i < measured.workers_size(); ++i) {
    const v1::WorkerUse& one = predicted.workers(i);
    const v1::WorkerUse& other = measured.workers(i);
    AddRow("memory of " + one.worker(), MemoryOf(one), MemoryOf(other), Bytes, table);
    AddRow("sent in a step by " + one.worker(), SentOf(one), SentOf(other), Bytes, table);
  }
  return table.Render();
}

std::string StepUseText(const v1::Feedback& feedback) {
  std::string text;
  if (feedback.measured().has_step_seconds()) {
    absl::StrAppend(&text, ", step ", Ms(feedback.measured().step_seconds()));
  }
  if (feedback.predicted().has_step_seconds()) {
    absl::StrAppend(&text, ", ", Ms(feedback.predicted().step_seconds()), " predicted");
  }
  return text;
}

}  // namespace penstock
