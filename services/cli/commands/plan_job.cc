#include "services/cli/commands/plan_job.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "job/open_job.h"
#include "job/resolve.h"
#include "job/yaml/yaml_message.h"
#include "job/yaml/yaml_writer.h"
#include "planner/graph/render_plan.h"
#include "planner/job/measured_cluster.h"
#include "planner/job/planned_job.h"
#include "services/cli/command.h"
#include "services/cli/command_text.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/drawings.h"
#include "services/cli/interrupt.h"
#include "services/cli/job_plan_output.h"
#include "services/cli/json_output.h"
#include "services/cli/profile_job.h"
#include "services/cli/text.h"
#include "services/cli/work_display.h"
#include "worker/layer_profiler.h"
#include "worker/open_data.h"
#include "worker/paused_reference.h"

namespace penstock {
namespace {

constexpr double kRaceSecondsEver = 1e7;

std::function<absl::Status()> Unless(Interrupt& interrupt) {
  return [&interrupt] {
    return interrupt.Count() > 0 ? InterruptedError("interrupted; nothing was written")
                                 : absl::OkStatus();
  };
}

// The candidates train on this machine, one after the other.
absl::StatusOr<JobRace> RunRaceOf(const JobPlan& plan, const JobPlanOptions& asked,
                                  Interrupt& interrupt, Console& console) {
  JobRace race = {.candidates = CandidatesToRace(plan, !asked.methods.empty())};
  if (race.candidates.empty()) {
    return FailedError(
        "only methods with drawn delays can run, which are for theory; --methods names them");
  }
  const int64_t over_ns =
      RealClock().MonotonicNs() +
      static_cast<int64_t>(std::min(asked.race_seconds, kRaceSecondsEver) * 1e9);
  const auto is_over = [over_ns] { return RealClock().MonotonicNs() >= over_ns; };
  const std::function<absl::Status()> not_interrupted = Unless(interrupt);
  const std::function<absl::Status()> may_go_on = [&] {
    return is_over() ? absl::DeadlineExceededError("the time of the race is over")
                     : not_interrupted();
  };
  const std::string data_root = FolderOfJob(asked.job.path);
  std::vector<std::unique_ptr<PausedReference>> trainings;
  std::vector<Racer> racers;
  v1::DataSpec data;
  for (const int candidate : race.candidates) {
    const JudgedCandidate& judged = plan.candidates[candidate];
    ReferenceOptions reference = {
        .spec = judged.spec, .stages = judged.layers, .data_root = data_root};
    if (racers.empty()) {  // the data of all
      PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(judged.spec));
      PENSTOCK_RETURN_IF_ERROR(CheckJobData(RealFiles(), data_root, job, reference.spec));
      data = reference.spec.data();
    }
    *reference.spec.mutable_data() = data;
    trainings.push_back(std::make_unique<PausedReference>(std::move(reference), may_go_on));
    PausedReference* const training = trainings.back().get();
    racers.push_back({.step_s = judged.step_s,
                      .train_to = [training](int64_t steps) { return training->TrainTo(steps); },
                      .leave = [training] { training->Leave(); }});
  }
  const JudgedCandidate& fastest = plan.candidates[race.candidates.front()];
  WorkDisplay display("racer", console, RealClock());
  RaceOptions options = RoundsOf(fastest, asked.race_steps);
  options.until_loss = asked.until_loss;
  options.is_over = is_over;
  options.progress = [&](int round, int racer, int all) {
    display.Draw(racer, all, absl::StrCat("round ", round + 1));
  };
  race.result = RunRace(racers, options);
  PENSTOCK_RETURN_IF_ERROR(not_interrupted());
  return race;
}

// `stages`: that the job may have; none: any.
absl::StatusOr<PlannedJob> PlanOnThisMachine(const PlanningInput& input,
                                             const JobPlanOptions& asked, bool as_dawnpiper,
                                             const std::vector<int32_t>& stages, double budget_s,
                                             Interrupt& interrupt, Console& console) {
  PlannedJob planned;
  {
    WorkDisplay display("candidate", console, RealClock());
    TimeBudget budget(RealClock(), absl::Seconds(budget_s));
    PENSTOCK_ASSIGN_OR_RETURN(
        planned.plan, PlanJob(input,
                              {.as_dawnpiper = as_dawnpiper,
                               .methods = asked.methods,
                               .stages = stages,
                               .progress = [&](int done, int all) { display.Draw(done, all, ""); },
                               .may_go_on = Unless(interrupt)},
                              budget));
  }
  if (asked.races && planned.plan.fastest.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(planned.race, RunRaceOf(planned.plan, asked, interrupt, console));
  }
  PENSTOCK_RETURN_IF_ERROR(DescribeChosen(input, asked.explains, planned));
  return planned;
}

// The file's profile, or one made now by the coordinator's workers.
absl::StatusOr<MeasuredCluster> Measured(const JobPlanOptions& options, const JobPlanInput& input,
                                         const v1::JobSpec& spec, Interrupt& interrupt,
                                         Console& console) {
  if (options.coordinator.address.empty() == input.profile_path.empty()) {
    return absl::InvalidArgumentError(
        "expected either --profile FILE or --coordinator ADDRESS, whose workers are profiled");
  }
  if (!input.profile_path.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(input.profile_path));
    return ParseMeasuredCluster(text, input.profile_path);
  }
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  v1::ProfileSpec asked;
  const std::vector<int64_t> samples = SizesAround(job);
  asked.mutable_samples()->Assign(samples.begin(), samples.end());
  asked.set_seconds(LayerProfilerOptions().seconds);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ClusterProfile profile,
                            ProfileCluster(client, spec, asked, interrupt, console, RealClock()));
  return ClusterOfProfile(profile);
}

absl::Status WriteChosen(const JobPlanOptions& options, const JudgedCandidate& chosen,
                         Console& console) {
  const std::string comment = absl::StrCat("planned: ", NameOf(chosen.candidate), ", ",
                                           FormatFixed(chosen.step_s * 1e3, 3), " ms a step");
  if (!options.output_path.empty()) {
    PENSTOCK_RETURN_IF_ERROR(
        WriteTextFile(options.output_path, WriteYamlMessage(chosen.spec, comment)));
    console.err << "wrote " << options.output_path << "\n";
  }
  if (!options.times_path.empty()) {
    PENSTOCK_RETURN_IF_ERROR(
        WriteTextFile(options.times_path, WriteYamlMessage(chosen.times, comment)));
    console.err << "wrote " << options.times_path << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddJobPlanOptions(CLI::App& app, JobPlanOptions& options) {
  CLI::Option* job = AddJobSourceOptions(app, options.job);
  job->required(false);
  app.add_option(
         "--coordinator", options.coordinator.address,
         "With a job: profile the workers of the coordinator at HOST:PORT and plan for them")
      ->type_name("ADDRESS")
      ->needs(job);
  AddSecurityFlags(app, options.coordinator.security);
  app.add_option("--methods", options.methods,
                 "With a job: the methods to try; default: all of the catalog, and searched")
      ->type_name("NAME[,NAME...]")
      ->delimiter(',')
      ->check(KnownMethods({"searched"}))
      ->needs(job);
  app.add_option("--stages", options.stages,
                 "With a job: the numbers of stages to try; default: all, or the job's if it has "
                 "method auto")
      ->type_name("N[,N...]")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->needs(job);
  app.add_flag("--explain", options.explains,
               "With a job: explain the time of the chosen candidate's step")
      ->needs(job);
  app.add_flag("--all", options.shows_all,
               "With a job: show every candidate, not the best of each method")
      ->needs(job);
  CLI::Option* race = app.add_flag("--race", options.races,
                                   "With a job: let the fastest candidate of each kind train here, "
                                   "and choose by loss over time");
  race->needs(job);
  app.add_option("--until", options.until_loss,
                 "With --race: the training loss to reach; default: the lowest at the end")
      ->type_name("LOSS")
      ->check(CLI::PositiveNumber)
      ->needs(race);
  app.add_option("--race-steps", options.race_steps,
                 "With --race: most steps of the fastest candidate; default: a quarter of the "
                 "job's")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->needs(race);
  app.add_option("--race-seconds", options.race_seconds,
                 "With --race: most time of this machine; the candidate that leads then wins")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->needs(race);
  app.add_option("-o,--output", options.output_path,
                 "With a job: write the fastest, or the winner of the race, as a job file")
      ->type_name("FILE")
      ->needs(job);
  app.add_option("--times", options.times_path,
                 "With a job: write the times and links that the fastest was simulated on, for "
                 "emulation")
      ->type_name("FILE")
      ->needs(job);
}

absl::Status RunJobPlan(const JobPlanOptions& options, JobPlanInput input, Console& console) {
  for (const std::string& path : {options.output_path, options.times_path, input.svg_path}) {
    if (!path.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(path));
  }
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJob(options.job));
  PENSTOCK_RETURN_IF_ERROR(CompleteSubmission(document).status());
  std::vector<int32_t> stages;  // that the job may have; none: any
  const std::string& planner =
      input.planner.empty() ? document.spec.planning().planner() : input.planner;
  const bool as_dawnpiper = planner == kDawnPiperName;
  if (MethodIsOpen(document.spec)) {
    if (document.spec.pipeline().has_stages()) stages = {document.spec.pipeline().stages()};
    document.spec.clear_pipeline();
    document.spec.clear_planning();
    document.spec.clear_prediction();
  }
  JobDocument draft = document;
  draft.spec = DraftOf(document.spec);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSpec complete, CompleteJob(std::move(draft)));
  for (const std::string& note : document.notes) console.err << note << "\n";
  // A custom schedule is of one split; no candidate has it.
  document.spec.mutable_pipeline()->clear_schedule_file();
  document.spec.mutable_pipeline()->clear_schedule();
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_ASSIGN_OR_RETURN(MeasuredCluster measured,
                            Measured(options, input, complete, interrupt, console));
  const bool is_measured = input.cluster.workers.empty();
  if (!is_measured) measured.cluster = std::move(input.cluster);
  if (measured.cluster.workers.empty()) {
    return absl::InvalidArgumentError(
        "the profile is of one device: say for which workers to plan, with --cluster FILE or "
        "--workers N");
  }
  const PlanningInput planning = {.spec = std::move(document.spec),
                                  .profile = std::move(measured.profile),
                                  .cluster = std::move(measured.cluster),
                                  .names_workers = is_measured};
  const absl::StatusOr<PlannedJob> planned = PlanOnThisMachine(
      planning, options, as_dawnpiper, options.stages.empty() ? stages : options.stages,
      input.budget_s, interrupt, console);
  if (!planned.ok()) return Annotate(planned.status(), options.job.path);
  if (input.json) {
    PrintJson(JobPlanJson(*planned), console);
  } else {
    console.out << JobPlanText(*planned, options.shows_all);
  }
  if (planned->chosen() == nullptr) {
    return FailedError(planned->race.has_value() ? std::string("every candidate of the race failed")
                                                 : NothingRunsText(planned->plan));
  }
  PENSTOCK_RETURN_IF_ERROR(WriteChosen(options, *planned->chosen(), console));
  if (input.svg_path.empty()) return absl::OkStatus();
  const StagePicture& picture = *planned->picture;
  PENSTOCK_RETURN_IF_ERROR(WriteTextFile(
      input.svg_path,
      RenderPlanSvg(picture.graph, picture.plan, NameOf(planned->chosen()->candidate))));
  console.err << "wrote " << input.svg_path << "\n";
  return absl::OkStatus();
}

}  // namespace penstock
