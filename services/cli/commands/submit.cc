// penstock submit: hands a job to a coordinator and, normally, watches it to its end.
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/put_path.h"
#include "base/status.h"
#include "coordinator/recovery_policy.h"
#include "job/open_job.h"
#include "job/resolve.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/follow.h"
#include "services/cli/interrupt.h"
#include "services/cli/job_file.h"
#include "services/cli/json_output.h"
#include "services/cli/next_commands.h"
#include "services/cli/planning_text.h"
#include "services/cli/result_table.h"
#include "services/documents/result_json.h"
#include "worker/open_data.h"

namespace penstock {
namespace {

struct SubmitOptions {
  JobFileOptions job;
  CoordinatorOptions coordinator;
  std::string idempotency_key;
  bool no_wait = false;
  bool json = false;
};

// A user who interrupts before there is a job wants none.
absl::Status CheckNotInterrupted(Interrupt& interrupt) {
  if (interrupt.Count() == 0) return absl::OkStatus();
  return absl::CancelledError("interrupted; nothing was submitted");
}

// Checks the data and enters their digests, if they are on this machine.
absl::Status CheckLocalData(const std::string& job_path, Interrupt& interrupt, v1::JobSpec& spec) {
  const std::string folder = std::filesystem::path(job_path).parent_path().string();
  if (!JobDataIsHere(folder, spec)) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveSubmitted(spec));
  return CheckJobData(RealFiles(), folder, job, spec, [&] { return interrupt.Count() > 0; });
}

// A relative path of a flag must exist here: the cluster would look for it where this directory is here.
absl::Status CheckIsHere(const std::string& flag, const std::string& path) {
  std::error_code error;
  const bool is_elsewhere =
      path.empty() || std::filesystem::path(path).is_absolute() || IsPutPath(path);
  if (is_elsewhere || std::filesystem::exists(path, error)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(flag, " ", path,
                   ": is not there; a relative path starts from this "
                   "directory, an absolute one may be on the workers alone"));
}

// The coordinator and all workers must find `key`'s path, and each has a current directory of its
// own.
absl::Status CheckAbsolute(const std::string& key, const std::string& path) {
  if (path.empty() || std::filesystem::path(path).is_absolute()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": ", path,
                   " is relative, which means another directory on every machine; name one that ",
                   "the coordinator and all workers share, as in --set ", key, "=/shared/", path));
}

absl::Status CheckCheckpoints(const v1::CheckpointSpec& checkpoint) {
  PENSTOCK_RETURN_IF_ERROR(CheckAbsolute("checkpoint.directory", checkpoint.directory()));
  if (checkpoint.resume() == "latest") return absl::OkStatus();
  return CheckAbsolute("checkpoint.resume", checkpoint.resume());
}

// Says what a failure would cost a job that recovers, where that is all that it has done.
std::string NoteOnRecovery(const v1::JobSpec& spec) {
  const v1::CheckpointSpec& checkpoint = spec.checkpoint();
  const bool has_snapshots =
      spec.recovery().snapshot_every_steps() > 0 ||
      (checkpoint.directory().empty() && spec.validation().every_steps() > 0);
  if (!Recovers(spec) || checkpoint.every_steps() > 0 || has_snapshots) return "";
  return absl::StrCat(
      "nothing is saved before the last step (checkpoint.every_steps is 0): after a "
      "failure the job would begin again ",
      checkpoint.resume().empty()
          ? "at step 0"
          : absl::StrCat("from the checkpoint of checkpoint.resume (", checkpoint.resume(), ")"),
      "\n");
}

absl::Status RunSubmit(const SubmitOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_RETURN_IF_ERROR(CheckIsHere("--data", options.job.data));
  if (options.job.resume != "latest") {
    PENSTOCK_RETURN_IF_ERROR(CheckIsHere("--resume", options.job.resume));
  }
  JobFileOptions file = options.job;
  file.leaves_put_model = true;
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJob(file));
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec spec, CompleteSubmission(document));
  console.err << NotesOf(document, spec);
  PENSTOCK_RETURN_IF_ERROR(CheckCheckpoints(spec.checkpoint()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAbsolute("step_records.directory", spec.step_records().directory()));
  PENSTOCK_RETURN_IF_ERROR(CheckLocalData(options.job.path, interrupt, spec));
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  PENSTOCK_RETURN_IF_ERROR(CheckNotInterrupted(interrupt));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string job_id,
                            client.SubmitJob(spec, options.idempotency_key));
  if (options.no_wait) {
    if (options.json) {
      PrintJson({{"job_id", job_id}}, console);
    } else {
      console.out << job_id << "\n";
    }
  }
  console.err << NoteOnRecovery(spec) << "submitted " << job_id << "; next:\n"
              << NextCommands(job_id, client.flags()) << std::flush;
  if (options.no_wait) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job,
                            FollowJob(client, job_id, interrupt, console, RealClock(),
                                      {.on_interrupt = FollowOptions::OnInterrupt::kDetach}));
  if (options.json) {
    PrintJson(ResultJson(job, {}), console);
  } else if (job.result().steps() > 0) {
    console.out << ResultText(job);
  }
  const std::string order_file = job_id + ".schedule";
  console.err << RepeatText(job, order_file, ShowOrderCommand(job_id, order_file, client.flags()));
  return StatusOfEnd(job);
}

}  // namespace

CommandRunner DeclareSubmit(CLI::App& app) {
  const auto options = std::make_shared<SubmitOptions>();
  AddJobFileOptions(app, options->job);
  AddCoordinatorOptions(app, options->coordinator);
  app.add_option("--idempotency-key", options->idempotency_key,
                 "A second submission with the same key makes no second job, but watches the first")
      ->type_name("KEY");
  app.add_flag("--no-wait", options->no_wait, "Print the job's ID and return");
  app.add_flag("--json", options->json, "Print JSON: the result, or with --no-wait the ID");
  return [options](Console& console) { return RunSubmit(*options, console); };
}

}  // namespace penstock
