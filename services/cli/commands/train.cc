// penstock train: a whole cluster on this machine, for one job.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status.h"
#include "job/open_job.h"
#include "results/job_timeline.h"
#include "results/recorded_order_file.h"
#include "results/step_prediction.h"
#include "services/cli/cluster_options.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/drawings.h"
#include "services/cli/feedback_output.h"
#include "services/cli/follow.h"
#include "services/cli/interrupt.h"
#include "services/cli/json_output.h"
#include "services/cli/local_cluster.h"
#include "services/cli/next_commands.h"
#include "services/cli/planning_text.h"
#include "services/cli/reference_run.h"
#include "services/cli/result_table.h"
#include "services/cli/shell_word.h"
#include "services/cli/train_job.h"
#include "services/documents/result_json.h"

namespace penstock {
namespace {

struct TrainOptions {
  TrainJobOptions job;
  std::vector<int64_t> extra_cuts;
  ClusterOptions cluster;
  std::string metrics = "off";
  std::string timeline_prefix;
  std::string record_path;
  std::vector<std::string> recorded_paths;
  bool losses = false;
  bool json = false;

  bool timeline() const { return !timeline_prefix.empty(); }
  DrawingOptions timeline_files() const {
    return {.svg_path = timeline_prefix + ".svg", .trace_path = timeline_prefix + ".trace.json"};
  }
};

// The timeline of the last steps; none if no timeline is asked for, or no step was done.
using LastSteps = std::optional<JobTimeline>;

void Print(const v1::GetJobResponse& job, const LastSteps& last_steps, const TrainOptions& options,
           Console& console) {
  const Timeline timeline = last_steps.has_value() ? last_steps->measured : Timeline();
  const absl::StatusOr<StepPrediction> found = PredictJob(job, timeline);
  const auto prediction = found.ok() ? std::optional(*found) : std::nullopt;
  if (options.json) {
    PrintJson(ResultJson(job, {.losses = options.losses, .prediction = prediction}), console);
  } else if (job.result().steps() > 0) {
    console.out << "\n" << ResultText(job);
    if (prediction.has_value()) console.out << PredictionText(*prediction);
  }
}

absl::StatusOr<LastSteps> FetchTimeline(CoordinatorClient& client, const v1::GetJobResponse& job,
                                        const TrainOptions& options) {
  const bool failed = job.summary().state() == v1::JOB_STATE_FAILED;
  if (!options.timeline() || failed || job.result().steps() == 0) return LastSteps();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetTimelineResponse response,
                            client.GetTimeline(job.summary().job_id()));
  PENSTOCK_ASSIGN_OR_RETURN(JobTimeline timeline, JobTimelineOf(job, response));
  return LastSteps(std::move(timeline));
}

absl::Status DrawTimeline(const absl::StatusOr<LastSteps>& timeline, const v1::GetJobResponse& job,
                          const TrainOptions& options, Console& console) {
  PENSTOCK_RETURN_IF_ERROR(timeline.status());
  if (!timeline->has_value()) return absl::OkStatus();
  const JobTimeline& drawn = **timeline;
  console.err << TimelineNotes(drawn);
  return Draw(RowsOf(drawn),
              absl::StrCat(job.summary().name(), ", ", job.summary().method(),
                           StepUseText(job.result().feedback()), TitleNotes(drawn)),
              options.timeline_files(), console);
}

absl::Status WriteOrder(const v1::GetJobResponse& job, const TrainOptions& options,
                        Console& console) {
  if (options.record_path.empty()) return absl::OkStatus();
  std::string text = job.spec().pipeline().schedule();
  if (job.spec().pipeline().order() == "recorded") {
    PENSTOCK_ASSIGN_OR_RETURN(const RecordedOrder order, RecordedOrderOf(job));
    text = PrintRecordedOrder(order);
  } else if (text.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has trained with ", job.summary().method(),
                     ", whose order `penstock schedule show` prints"));
  }
  PENSTOCK_RETURN_IF_ERROR(WriteTextFile(options.record_path, text));
  console.err << "wrote " << options.record_path << "\n";
  return absl::OkStatus();
}

// Reports work left undone after a job's end: an error unless the job itself ended with one.
absl::Status EndWith(const absl::Status& ended, const std::string& undone, Console& console) {
  if (ended.ok()) return FailedError(undone);
  console.err << undone << "\n";
  return ended;
}

// Watches the job to its end. A cluster that breaks down fails it: then the result so far, where the
// coordinator of this process has one, with the reason.
absl::StatusOr<v1::GetJobResponse> Follow(LocalCluster& cluster, CoordinatorClient& client,
                                          const std::string& job_id, Interrupt& interrupt,
                                          Console& console) {
  absl::StatusOr<v1::GetJobResponse> job =
      FollowJob(client, job_id, interrupt, console, RealClock(),
                {.on_interrupt = FollowOptions::OnInterrupt::kCancelJob,
                 .health = [&] { return cluster.Health(); }});
  if (job.ok() || absl::IsCancelled(job.status())) return job;
  absl::StatusOr<v1::GetJobResponse> broken = client.GetJob(job_id);
  if (!broken.ok()) return job.status();
  broken->mutable_summary()->set_state(v1::JOB_STATE_FAILED);
  broken->mutable_summary()->set_error(std::string(job.status().message()));
  return broken;
}

// The result first: what goes wrong with the picture, or who waits for scrapes, must not cost it.
void PrintAndStop(const v1::GetJobResponse& job, const LastSteps& last_steps,
                  const TrainOptions& options, LocalCluster& cluster, Interrupt& interrupt,
                  Console& console) {
  const bool failed = job.summary().state() == v1::JOB_STATE_FAILED;
  const bool lingers = options.metrics != "off";
  if (!lingers) cluster.Stop(failed ? absl::ZeroDuration() : LocalCluster::kStopGrace);
  Print(job, last_steps, options, console);
  if (!lingers) return;
  console.out.flush();
  const int signals = interrupt.Count();
  cluster.StopOnceScraped([&] { return interrupt.Count() > signals; });
}

absl::Status TrainOnCluster(const TrainJob& train, const TrainOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<HostPort> metrics,
                            ParseHostPortOrOff(options.metrics));
  // Signals are taken in before there are threads, and the supervisor is forked before there are any.
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<LocalCluster> cluster,
      LocalCluster::Fork({.workers = train.workers,
                          .names = {train.spec.pipeline().worker_names().begin(),
                                    train.spec.pipeline().worker_names().end()},
                          .device = options.cluster.device,
                          .emulate = options.cluster.emulate_path,
                          .threads = DraftOf(train.spec).training().threads(),
                          .data_root = train.data_root,
                          .checkpoint_directory = train.spec.checkpoint().directory(),
                          .metrics = metrics}));
  PENSTOCK_RETURN_IF_ERROR(cluster->Start(RealClock()));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> scraped, cluster->MetricsAddresses());
  for (const std::string& address : scraped) console.err << "metrics: " << address << "\n";
  CoordinatorClient client = cluster->Connect();
  PENSTOCK_ASSIGN_OR_RETURN(const std::string job_id, client.SubmitJob(train.spec));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job,
                            Follow(*cluster, client, job_id, interrupt, console));
  const absl::StatusOr<LastSteps> timeline = FetchTimeline(client, job, options);
  PrintAndStop(job, timeline.value_or(LastSteps()), options, *cluster, interrupt, console);
  const std::string order_file =
      options.record_path.empty() ? job.summary().name() + ".schedule" : options.record_path;
  console.err << RepeatText(job, order_file, "penstock train --record " + ShellWord(order_file));
  const absl::Status drawn = DrawTimeline(timeline, job, options, console);
  const absl::Status written = WriteOrder(job, options, console);
  absl::Status ended = StatusOfEnd(job);
  if (ended.ok() || absl::IsCancelled(ended)) console.err << ModelCommands(job, train.data_root);
  if (!drawn.ok()) {
    ended = EndWith(ended, absl::StrCat("--timeline: not drawn: ", drawn.message()), console);
  }
  if (!written.ok()) {
    ended = EndWith(ended, absl::StrCat("--record: not written: ", written.message()), console);
  }
  return ended;
}

absl::Status RunTrain(const TrainOptions& options, Console& console) {
  if (options.timeline()) {
    PENSTOCK_RETURN_IF_ERROR(Annotate(CheckCanDraw(options.timeline_files()), "--timeline"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckClusterOptions(options.cluster));
  if (!options.record_path.empty()) {
    PENSTOCK_RETURN_IF_ERROR(Annotate(CheckCanWrite(options.record_path), "--record"));
  }
  std::optional<RecordedOrder> recorded;
  if (!options.recorded_paths.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(recorded, ReadRecordedOrders(RealFiles(), options.recorded_paths));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const TrainJob train, PrepareTrainJob(RealFiles(), options.job));
  console.err << train.notes;
  const bool finds_order = OrderIsOpen(train.spec) || MethodIsOpen(train.spec) ||
                           train.spec.pipeline().order() == "recorded";
  if (!options.record_path.empty() && !finds_order) {
    return absl::InvalidArgumentError(
        absl::StrCat("--record: pipeline.order is ", train.spec.pipeline().order(),
                     ", so there is nothing to record; add --set pipeline.order=recorded"));
  }
  if (!options.job.reference) return TrainOnCluster(train, options, console);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job,
                            RunReference(train, options.extra_cuts, std::move(recorded), console));
  Print(job, std::nullopt, options, console);
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareTrain(CLI::App& app) {
  const auto options = std::make_shared<TrainOptions>();
  AddJobFileOptions(app, options->job.job);
  CLI::Option* emulate = AddClusterOptions(app, options->job, options->cluster);
  CLI::Option* reference = app.add_flag(
      "--reference", options->job.reference,
      "Train in this process, one microbatch after the other, without checkpoints; a cluster must "
      "give the same bits");
  reference->excludes(emulate);
  app.add_option("--extra-cuts", options->extra_cuts,
                 "With --reference: the extra_cuts of the run to compare with")
      ->type_name("STEP[,STEP...]")
      ->delimiter(',')
      ->needs(reference);
  app.add_option(
         "--record", options->record_path,
         "With pipeline.order recorded, or method searched: write the order that the workers "
         "took, or that was found")
      ->type_name("FILE")
      ->excludes(reference);
  app.add_option(
         "--recorded", options->recorded_paths,
         "With --reference: files that --record wrote, of the run to compare with and of those it "
         "resumed")
      ->type_name("FILE[,FILE...]")
      ->delimiter(',')
      ->needs(reference);
  app.add_option("--timeline", options->timeline_prefix,
                 "Draw the last steps, measured and predicted: PREFIX.svg and PREFIX.trace.json "
                 "(ui.perfetto.dev)")
      ->type_name("PREFIX")
      ->excludes(reference);
  app.add_option(
         "--metrics", options->metrics,
         "Answer Prometheus (docs/metrics.md): the coordinator at this address, the workers on the "
         "ports after it; the end waits up to 15 s for a scrape of each")
      ->type_name("ADDRESS|off")
      ->excludes(reference);
  app.add_flag("--losses", options->losses,
               "Add the losses of the steps to the JSON, 8192 of them at most");
  app.add_flag("--json", options->json, "Print the result as one JSON object");
  return [options](Console& console) { return RunTrain(*options, console); };
}

}  // namespace penstock
