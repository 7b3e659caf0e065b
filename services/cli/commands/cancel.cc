// penstock cancel: ends a job at its next step boundary.
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "coordinator/job_state.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/json_output.h"

namespace penstock {
namespace {

struct CancelOptions {
  CoordinatorOptions coordinator;
  std::string job_id;
  bool json = false;
};

absl::Status RunCancel(const CancelOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::CancelJobResponse response, client.CancelJob(options.job_id));
  const std::string state = JobStateName(response.state());
  if (options.json) {
    const nlohmann::ordered_json json = {{"job_id", options.job_id}, {"state", state}};
    PrintJson(json, console);
  } else {
    console.out << options.job_id << " is " << state << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareCancel(CLI::App& app) {
  const auto options = std::make_shared<CancelOptions>();
  app.add_option("ID", options->job_id, "The job")->required()->type_name("");
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunCancel(*options, console); };
}

}  // namespace penstock
