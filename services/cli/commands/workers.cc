// penstock workers: the workers a coordinator knows.
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "coordinator/worker_state.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/documents/result_json.h"

namespace penstock {
namespace {

struct WorkersOptions {
  CoordinatorOptions coordinator;
  bool json = false;
};

absl::Status RunWorkers(const WorkersOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ListWorkersResponse list, client.ListWorkers());
  if (options.json) {
    nlohmann::ordered_json workers = nlohmann::ordered_json::array();
    for (const v1::WorkerSummary& worker : list.workers()) workers.push_back(WorkerJson(worker));
    PrintJson(workers, console);
    return absl::OkStatus();
  }
  if (list.workers_size() == 0) {
    console.out
        << "no workers yet; start one with `penstock-worker --certificates DIR --coordinator "
        << options.coordinator.address << "`\n";
    return absl::OkStatus();
  }
  Table table({{"NAME"},
               {"ADDRESS"},
               {"STATE"},
               {"JOB"},
               {"DEVICE"},
               {"MEMORY", Table::Align::kRight},
               {"HEARTBEAT", Table::Align::kRight},
               {"METRICS"}});
  for (const v1::WorkerSummary& worker : list.workers()) {
    const std::string heartbeat = absl::StrCat(
        FormatDuration(static_cast<double>(worker.last_heartbeat_ms_ago()) * 1e-3), " ago");
    table.AddRow({worker.name(), worker.address(), WorkerStateName(StateOf(worker)),
                  worker.job_id().empty() ? "-" : worker.job_id(), worker.device(),
                  FormatBytes(worker.memory_bytes()), heartbeat,
                  worker.metrics_address().empty() ? "-" : worker.metrics_address()});
  }
  console.out << table.Render();
  for (const v1::WorkerSummary& worker : list.workers()) {
    if (!worker.unusable_reason().empty()) console.out << worker.unusable_reason() << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareWorkers(CLI::App& app) {
  const auto options = std::make_shared<WorkersOptions>();
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunWorkers(*options, console); };
}

}  // namespace penstock
