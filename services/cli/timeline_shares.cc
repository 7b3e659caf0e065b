#include "services/cli/timeline_shares.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSecondsPerNs = 1e-9;

double WindowNs(const Timeline& timeline) {
  return static_cast<double>(timeline.end_ns() - timeline.start_ns());
}

bool IsMissing(const JobTimeline& timeline, size_t worker) {
  const auto& missing = timeline.missing;
  return worker < timeline.workers.size() &&
         std::find(missing.begin(), missing.end(), timeline.workers[worker]) != missing.end();
}

Json WorkerSharesJson(const JobTimeline& job, const Timeline& timeline, bool measured) {
  Json workers = Json::array();
  size_t worker = 0;
  for (const TimeShares& shares : SharesOf(timeline)) {
    const bool known = !measured || !IsMissing(job, worker);
    Json waits = Json::object();
    for (int cause = 1; cause < kWaits; ++cause) {
      waits[std::string(WaitName(static_cast<Wait>(cause)))] =
          static_cast<double>(shares.waiting_ns(static_cast<Wait>(cause))) * kSecondsPerNs;
    }
    const bool named = worker < job.workers.size();
    workers.push_back(
        {{"worker", worker},
         {"name", named ? Json(job.workers[worker]) : Json()},
         {"busy_seconds",
          known ? Json(static_cast<double>(shares.busy_ns()) * kSecondsPerNs) : Json()},
         {"idle_causes", known ? waits : Json()}});
    ++worker;
  }
  return workers;
}

const char* SourceName(TimesSource source) {
  return source == TimesSource::kPlan ? "plan" : "measurements";
}

}  // namespace

std::string SharesText(const JobTimeline& timeline) {
  using Align = Table::Align;
  const bool both = timeline.compared.ok();
  std::vector<Table::Column> columns = {
      {"WORKER"}, {"BUSY", Align::kRight}, {"WAITING", Align::kRight}};
  if (both) {
    columns.push_back({"PREDICTED BUSY", Align::kRight});
    columns.push_back({"PREDICTED WAITING", Align::kRight});
  }
  Table table(columns);
  // Both sides, if there are two, show the same steps.
  const Timeline& measured = both ? timeline.compared->measured : timeline.measured;
  const std::vector<TimeShares> shares = SharesOf(measured);
  const std::vector<TimeShares> predicted =
      both ? SharesOf(timeline.compared->predicted) : std::vector<TimeShares>();
  const auto part = [](int64_t ns, const Timeline& of) {
    return FormatPercent(static_cast<double>(ns) / std::max(1.0, WindowNs(of)));
  };
  const DrawnTimeline names = RowsOf(timeline).front();
  for (size_t worker = 0; worker < shares.size(); ++worker) {
    const bool known = !IsMissing(timeline, worker);
    std::vector<std::string> row = {RowName(names, static_cast<int32_t>(worker)),
                                    known ? part(shares[worker].busy_ns(), measured) : "-",
                                    known ? part(shares[worker].waiting_ns(), measured) : "-"};
    if (both) {
      row.push_back(part(predicted[worker].busy_ns(), timeline.compared->predicted));
      row.push_back(part(predicted[worker].waiting_ns(), timeline.compared->predicted));
    }
    table.AddRow(row);
  }
  std::string text =
      absl::StrCat("the last ", FormatDuration(WindowNs(timeline.measured) * kSecondsPerNs), ", ",
                   timeline.measured.spans.size(), " spans\n");
  if (both) {
    absl::StrAppend(&text, "measured: ", MeasuredNote(*timeline.compared),
                    "\npredicted: ", PredictedNote(*timeline.compared), "\n");
  }
  return absl::StrCat(text, table.Render());
}

Json SharesJson(const JobTimeline& timeline) {
  Json json = {{"seconds", WindowNs(timeline.measured) * kSecondsPerNs},
               {"spans", timeline.measured.spans.size()},
               {"workers", WorkerSharesJson(timeline, timeline.measured, true)},
               {"missing_workers", timeline.missing},
               {"compared", Json()}};
  if (timeline.compared.ok()) {
    const ComparedSteps& compared = *timeline.compared;
    const auto side = [&](const Timeline& of, double step_s, bool measured) {
      return Json{{"step_seconds", step_s},
                  {"seconds", WindowNs(of) * kSecondsPerNs},
                  {"workers", WorkerSharesJson(timeline, of, measured)}};
    };
    json["compared"] = {{"steps", compared.steps},
                        {"first_step", compared.first_step + 1},
                        {"times_from", SourceName(compared.source)},
                        {"measured", side(compared.measured, compared.measured_step_s, true)},
                        {"predicted", side(compared.predicted, compared.predicted_step_s, false)}};
  }
  return json;
}

}  // namespace penstock
