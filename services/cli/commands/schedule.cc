// penstock schedule show | verify | search: a schedule as text or picture, whether it is right, and the best
// one for given times (schedule_search.cc).
#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "coordinator/job_id.h"
#include "results/predicted_timeline.h"
#include "schedule/digest.h"
#include "schedule/pipelining_csv.h"
#include "schedule/simulate.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "services/cli/command_text.h"
#include "services/cli/commands/commands.h"
#include "services/cli/commands/schedule_search.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/drawings.h"
#include "services/cli/json_output.h"
#include "services/cli/schedule_source.h"
#include "services/cli/table.h"

namespace penstock {
namespace {

struct ShowOptions {
  ScheduleSource source;
  ScheduleTextOptions text;
  std::string output;
  DrawingOptions drawing;
  CoordinatorOptions coordinator;
};

struct VerifyOptions {
  ScheduleSource source;
  int32_t capacity = kChannelCapacityMax;
  bool json = false;
};

// The output of --expand must be short enough to be read again.
absl::Status CheckExpansion(const Schedule& schedule, const ScheduleTextOptions& options) {
  if (!options.expand) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(CheckSchedule(schedule));
  int64_t left = kScheduleTextActionsMax;
  for (const Program& program : schedule.programs) {
    if (program.size() > left) {
      return absl::InvalidArgumentError(
          absl::StrCat("--expand: the schedule has more than ", kScheduleTextActionsMax,
                       " actions; write it without, or take fewer --steps"));
    }
    left -= program.size();
  }
  return absl::OkStatus();
}

// A file named .csv is for PyTorch's pipelining, where its form has words for the schedule.
bool IsForPyTorch(const std::string& path) { return absl::EndsWith(path, ".csv"); }

absl::Status WriteShown(const ShowOptions& options, const Schedule& schedule, Console& console) {
  std::string note;
  std::string text;
  if (IsForPyTorch(options.output)) {
    absl::StatusOr<std::string> csv = PrintPipeliningCsv(schedule);
    if (csv.ok()) {
      text = *std::move(csv);
      note = " as PyTorch's pipelining has it";
    } else {
      note = absl::StrCat(" with a header: ", std::string(csv.status().message()));
    }
  }
  if (text.empty()) text = PrintSchedule(schedule, options.text);
  PENSTOCK_RETURN_IF_ERROR(WriteTextFile(options.output, text));
  console.err << "wrote " << options.output << note << "\n";
  return absl::OkStatus();
}

// "small-1-kzvpt": an ID that is the name of no method or file.
bool MayBeJob(const std::string& name) {
  return ParseJobId(name).has_value() && !FindMethod(name).ok() && !RealFiles().Exists(name);
}

absl::StatusOr<Schedule> ShownSchedule(const ShowOptions& options, Console& console) {
  const std::string& name = options.source.name;
  if (!MayBeJob(name)) return LoadSchedule(options.source, console);
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  const absl::StatusOr<v1::GetJobResponse> job = client.GetJob(name);
  if (!job.ok()) {
    return Annotate(job.status(), absl::StrCat("'", name, "' is neither a method nor a file"));
  }
  return StepOfPlan(*job);
}

absl::Status Show(const ShowOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule, ShownSchedule(options, console));
  if (options.drawing.any()) {
    PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result,
                              Simulate(schedule, {}, {.timeline_spans_max = kDrawnSpansMax}));
    PENSTOCK_RETURN_IF_ERROR(Draw(result, schedule, options.drawing, console));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckExpansion(schedule, options.text));
  if (!options.output.empty()) return WriteShown(options, schedule, console);
  if (!options.drawing.any()) console.out << PrintSchedule(schedule, options.text);
  return absl::OkStatus();
}

nlohmann::ordered_json VerifyJson(const Schedule& schedule, const VerifyReport& report) {
  nlohmann::ordered_json per_stage = nlohmann::ordered_json::array();
  for (size_t stage = 0; stage < report.stages.size(); ++stage) {
    const StageCounts& counts = report.stages[stage];
    per_stage.push_back(
        {{"stage", stage},
         {"worker", schedule.topology.table[stage].worker.value},
         {"staleness", {{"max", counts.staleness.max}, {"mean", counts.staleness.mean()}}},
         {"version_drift",
          {{"max", counts.version_drift.max}, {"mean", counts.version_drift.mean()}}},
         {"versions_peak", counts.versions_peak},
         {"predicted_weight_copies", counts.moved_copies},
         {"moved_weight_copies", counts.moved_copies},  // its name before, for one version
         {"activations_peak", counts.activations_peak}});
  }
  return {{"schedule", schedule.name},
          {"stages", schedule.topology.parts()},
          {"microbatches", schedule.range.count},
          {"actions", report.actions},
          {"channel_capacity_min", report.channel_capacity_min},
          {"digest", DigestOf(schedule)},
          {"per_stage", per_stage}};
}

std::string VerifyText(const std::string& source, const Schedule& schedule,
                       const VerifyReport& report) {
  Table table({{"STAGE", Table::Align::kRight},
               {"WORKER", Table::Align::kRight},
               {"STALENESS", Table::Align::kRight},
               {"DRIFT", Table::Align::kRight},
               {"VERSIONS", Table::Align::kRight},
               {"ACTIVATIONS", Table::Align::kRight}});
  for (size_t stage = 0; stage < report.stages.size(); ++stage) {
    const StageCounts& counts = report.stages[stage];
    table.AddRow(
        {absl::StrCat(stage), absl::StrCat(schedule.topology.table[stage].worker.value),
         absl::StrFormat("%d / %.2f", counts.staleness.max, counts.staleness.mean()),
         absl::StrFormat("%d / %.2f", counts.version_drift.max, counts.version_drift.mean()),
         absl::StrCat(counts.versions_peak), absl::StrCat(counts.activations_peak)});
  }
  return absl::StrCat(source, " is right: ", report.actions, " actions, ", schedule.range.count,
                      " microbatches, smallest channel capacity ", report.channel_capacity_min,
                      "\n\n", table.Render());
}

absl::Status VerifyOne(const VerifyOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule, LoadSchedule(options.source, console));
  const absl::StatusOr<VerifyReport> report =
      VerifyAndDraw(schedule, {.channel_capacity = options.capacity});
  if (!report.ok()) return Annotate(report.status(), options.source.name);
  if (options.json) {
    PrintJson(VerifyJson(schedule, *report), console);
  } else {
    console.out << VerifyText(options.source.name, schedule, *report);
  }
  return absl::OkStatus();
}

void AddSource(CLI::App& app, const char* what, const char* description, ScheduleSource& source) {
  app.add_option(what, source.name, description)->required()->type_name("")->check(KnownMethods());
  AddScheduleOptions(app, source);
}

}  // namespace

CommandRunner DeclareSchedule(CLI::App& app) {
  const auto show = std::make_shared<ShowOptions>();
  CLI::App* show_app = app.add_subcommand("show", "Print or draw a schedule");
  AddSource(*show_app, "METHOD|FILE|ID",
            "A method of the catalog, a schedule file, or a job, a step of which is shown",
            show->source);
  AddCoordinatorOptions(*show_app, show->coordinator);
  show_app->add_flag("--merge", show->text.merge_backward, "Write 0B3 for 0I3,0W3");
  show_app->add_flag("--expand", show->text.expand, "Write every copy of a repeated period");
  show_app->add_option("-o,--output", show->output, "Write the text to this file")
      ->type_name("FILE");
  AddDrawingOptions(*show_app, "--trace", show->drawing);

  const auto verify = std::make_shared<VerifyOptions>();
  CLI::App* verify_app = app.add_subcommand("verify", "Check a schedule: rules, deadlock, memory");
  AddSource(*verify_app, "METHOD|FILE", "A method of the catalog, or a schedule file",
            verify->source);
  verify_app->add_option("--capacity", verify->capacity, "Messages a channel holds")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  verify_app->add_flag("--json", verify->json, "Print JSON");

  CLI::App* search_app =
      app.add_subcommand("search", "Search the best order of a step for given times");
  const CommandRunner search = DeclareScheduleSearch(*search_app);

  app.require_subcommand(1);
  return [show_app, show, search_app, search, verify](Console& console) {
    if (search_app->parsed()) return search(console);
    return show_app->parsed() ? Show(*show, console) : VerifyOne(*verify, console);
  };
}

}  // namespace penstock
