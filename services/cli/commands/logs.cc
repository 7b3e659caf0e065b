// penstock logs: what happened in a job, event by event.
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/event_text.h"
#include "services/cli/follow.h"
#include "services/cli/interrupt.h"
#include "services/cli/job_watch.h"

namespace penstock {
namespace {

// An ended or silent stream: without -f, this much silence means that the past has been told.
constexpr absl::Duration kSilence = absl::Milliseconds(500);
constexpr absl::Duration kTick = absl::Milliseconds(200);

struct Options {
  std::string coordinator;
  std::string job_id;
  bool follow = false;
  bool json = false;
};

void Print(const v1::JobEvent& event, const Options& options, Console& console) {
  if (options.json) {
    console.out << EventJson(event).dump() << "\n";
  } else {
    console.out << EventText(event) << "\n";
  }
}

absl::Status PrintPast(JobWatch& watch, const Options& options, Console& console) {
  const int64_t now_unix_ms = absl::ToUnixMillis(absl::Now());
  while (const std::optional<v1::JobEvent> event = watch.Next(kSilence)) {
    if (event->unix_ms() > now_unix_ms) break;
    Print(*event, options, console);
  }
  return watch.Done() ? watch.status() : absl::OkStatus();
}

absl::Status PrintAll(JobWatch& watch, Interrupt& interrupt, const Options& options,
                      Console& console) {
  while (!watch.Done()) {
    if (const std::optional<v1::JobEvent> event = watch.Next(kTick)) {
      Print(*event, options, console);
      console.out.flush();
    }
    if (interrupt.Count() > 0) {
      return absl::CancelledError(
          absl::StrCat("no longer watching; job ", options.job_id, " goes on"));
    }
  }
  return watch.status();
}

absl::Status Run(const Options& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  PENSTOCK_RETURN_IF_ERROR(client.GetJob(options.job_id).status());  // a clear error if unknown
  JobWatch watch(client, options.job_id);
  if (!options.follow) return PrintPast(watch, options, console);
  PENSTOCK_RETURN_IF_ERROR(PrintAll(watch, interrupt, options, console));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, client.GetJob(options.job_id));
  return StatusOfEnd(job);
}

}  // namespace

CommandRunner DeclareLogs(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("ID", options->job_id, "The job")->required()->type_name("");
  app.add_flag("-f,--follow", options->follow,
               "Go on until the job ends; the exit code is then the job's");
  AddCoordinatorOption(app, options->coordinator);
  app.add_flag("--json", options->json, "Print one JSON object a line");
  return [options](Console& console) { return Run(*options, console); };
}

}  // namespace penstock
