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

namespace penstock {
namespace {

constexpr absl::Duration kLogTick = absl::Milliseconds(200);

struct LogsOptions {
  CoordinatorOptions coordinator;
  std::string job_id;
  bool follow = false;
  bool json = false;
};

void Print(const v1::JobEvent& event, const LogsOptions& options, Console& console) {
  if (options.json) {
    console.out << EventJson(event).dump() << "\n";
  } else {
    console.out << EventText(event) << "\n";
  }
}

// Errors: those of the stream; Cancelled if interrupted. The printed events are then not all.
absl::Status PrintPast(CoordinatorClient& client, Interrupt& interrupt, const LogsOptions& options,
                       Console& console) {
  int64_t last_sequence = 0;
  for (;;) {
    const int64_t before = last_sequence;
    absl::Status status =
        client.ReadPast(options.job_id, last_sequence, [&](const v1::JobEvent& event) {
          last_sequence = event.sequence();
          Print(event, options, console);
          return interrupt.Count() == 0;
        });
    // A reader that takes its time, such as a pager, outlasts one call.
    if (!absl::IsDeadlineExceeded(status) || last_sequence == before) return status;
  }
}

absl::Status PrintAll(CoordinatorClient& client, Interrupt& interrupt, const LogsOptions& options,
                      Console& console) {
  JobWatch watch(client, options.job_id);
  while (!watch.Done()) {
    if (const std::optional<v1::JobEvent> event = watch.Next(kLogTick)) {
      Print(*event, options, console);
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
  PENSTOCK_RETURN_IF_ERROR(client.GetJob(options.job_id).status());  // a clear error if unknown
  if (!options.follow) return PrintPast(client, interrupt, options, console);
  PENSTOCK_RETURN_IF_ERROR(PrintAll(client, interrupt, options, console));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, AwaitJob(client, options.job_id, [&] {
                              return interrupt.Count() > 0;
                            }));
  return StatusOfEnd(job);
}

}  // namespace

CommandRunner DeclareLogs(CLI::App& app) {
  const auto options = std::make_shared<LogsOptions>();
  app.add_option("ID", options->job_id, "The job")->required()->type_name("");
  app.add_flag("-f,--follow", options->follow,
               "Go on until the job ends; the exit code is then the job's");
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print one JSON object a line");
  return [options](Console& console) { return RunLogs(*options, console); };
}

}  // namespace penstock
