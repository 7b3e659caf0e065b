// penstock logs: what happened in a job, event by event.
#include <memory>
#include <optional>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/event_text.h"
#include "services/cli/follow.h"
#include "services/cli/interrupt.h"
#include "services/cli/job_watch.h"
#include "services/cli/next_commands.h"
#include "services/documents/step_record_text.h"

namespace penstock {
namespace {

constexpr absl::Duration kLogTick = absl::Milliseconds(200);

struct LogsOptions {
  CoordinatorOptions coordinator;
  std::string job_id;
  bool follow = false;
  bool json = false;
  std::string steps;  // "csv", "jsonl"; empty: events are printed
};

// Prints a job's events as they come.
class EventPrinter {
 public:
  EventPrinter(const v1::JobSpec& spec, const LogsOptions& options, Console& console)
      : options_(options), console_(console), records_(spec) {
    if (options_.steps == "csv") console_.out << StepRecordCsvHeader();
  }

  void Print(const v1::JobEvent& event) {
    if (options_.steps.empty()) {
      console_.out << (options_.json ? EventJson(event).dump() : EventText(event)) << "\n";
      return;
    }
    for (const StepRecord& record : records_.Add(event)) {
      console_.out << (options_.steps == "csv" ? StepRecordCsvLine(record)
                                               : StepRecordJsonLine(record));
    }
  }

 private:
  const LogsOptions& options_;
  Console& console_;
  StepRecords records_;
};

// Errors: those of the stream; Cancelled if interrupted. The printed events are then not all.
absl::Status PrintPast(CoordinatorClient& client, Interrupt& interrupt, const LogsOptions& options,
                       EventPrinter& printer) {
  int64_t last_sequence = 0;
  for (;;) {
    const int64_t before = last_sequence;
    absl::Status status =
        client.ReadPast(options.job_id, last_sequence, [&](const v1::JobEvent& event) {
          last_sequence = event.sequence();
          printer.Print(event);
          return interrupt.Count() == 0;
        });
    // A reader that takes its time, such as a pager, outlasts one call.
    if (!absl::IsDeadlineExceeded(status) || last_sequence == before) return status;
  }
}

absl::Status PrintAll(CoordinatorClient& client, Interrupt& interrupt, const LogsOptions& options,
                      EventPrinter& printer, Console& console) {
  JobWatch watch(client, options.job_id);
  while (!watch.Done()) {
    if (const std::optional<v1::JobEvent> event = watch.Next(kLogTick)) {
      printer.Print(*event);
      console.out.flush();
    }
    if (interrupt.Count() > 0) {
      return absl::CancelledError(DetachedText(options.job_id, client.flags()));
    }
    if (const std::string news = watch.News(); !news.empty()) console.err << news << std::endl;
  }
  return watch.status();
}

absl::Status RunLogs(const LogsOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  // A clear error if it is unknown.
  PENSTOCK_ASSIGN_OR_RETURN(v1::GetJobResponse job, client.GetJob(options.job_id));
  EventPrinter printer(job.spec(), options, console);
  if (!options.follow) return PrintPast(client, interrupt, options, printer);
  PENSTOCK_RETURN_IF_ERROR(PrintAll(client, interrupt, options, printer, console));
  PENSTOCK_ASSIGN_OR_RETURN(
      job, AwaitJob(client, options.job_id, [&] { return interrupt.Count() > 0; }));
  return StatusOfEnd(job);
}

}  // namespace

CommandRunner DeclareLogs(CLI::App& app) {
  const auto options = std::make_shared<LogsOptions>();
  app.add_option("ID", options->job_id, "The job")->required()->type_name("");
  app.add_flag("-f,--follow", options->follow,
               "Go on until the job ends; the exit code is then the job's");
  AddCoordinatorOptions(app, options->coordinator);
  CLI::Option* const json = app.add_flag("--json", options->json, "Print one JSON object a line");
  app.add_option("--steps", options->steps,
                 "Print a record of each step instead of the events, as csv or jsonl")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"csv", "jsonl"}))
      ->excludes(json);
  return [options](Console& console) { return RunLogs(*options, console); };
}

}  // namespace penstock
