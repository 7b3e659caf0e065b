#include "services/cli/commands/plan_job.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "job/cluster_profile.h"
#include "job/model_profile.h"
#include "job/yaml_message.h"
#include "job/yaml_writer.h"
#include "services/cli/command.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/drawings.h"
#include "services/cli/interrupt.h"
#include "services/cli/json_output.h"
#include "services/cli/profile_job.h"
#include "services/cli/reference_contestant.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/cli/train_job.h"
#include "services/cli/work_display.h"
#include "strategy/measured_cluster.h"
#include "strategy/plan_job.h"
#include "strategy/race.h"
#include "worker/layer_profiler.h"

namespace penstock {
namespace {

std::vector<int> LayerCounts(const JudgedCandidate& judged) {
  std::vector<int> counts;
  for (const LayerRange& range : judged.layers) counts.push_back(range.count);
  return counts;
}

std::string DelayText(const JudgedCandidate& judged) {
  return judged.block_delay.has_value() ? absl::StrCat(judged.block_delay->max) : "";
}

// The best of each method, or all.
std::vector<const JudgedCandidate*> Shown(const JobPlan& plan, bool all) {
  std::vector<const JudgedCandidate*> shown;
  std::set<std::string> methods;
  for (const JudgedCandidate& judged : plan.candidates) {
    const bool is_new = methods.insert(judged.candidate.method).second;
    if (is_new || all) shown.push_back(&judged);
  }
  return shown;
}

std::string CandidatesText(const JobPlan& plan, bool all) {
  Table table({{"METHOD"},
               {"STAGES", Table::Align::kRight},
               {"REPLICAS"},
               {"WORKERS", Table::Align::kRight},
               {"MICROBATCHES", Table::Align::kRight},
               {"RECOMPUTES"},
               {"STEP MS", Table::Align::kRight},
               {"BUBBLE", Table::Align::kRight},
               {"MEMORY", Table::Align::kRight},
               {"STALENESS", Table::Align::kRight},
               {"DELAY", Table::Align::kRight},
               {"LAYERS"}});
  std::string rejected;
  for (const JudgedCandidate* judged : Shown(plan, all)) {
    if (!judged->runs()) {
      absl::StrAppend(&rejected, NameOf(judged->candidate), ": ", judged->rejected, "\n");
      continue;
    }
    table.AddRow({judged->candidate.method, absl::StrCat(judged->candidate.stages),
                  absl::StrJoin(judged->candidate.replicas, "-"),
                  absl::StrCat(judged->workers.size()),
                  absl::StrCat(judged->candidate.microbatches),
                  judged->candidate.recomputes ? "all" : "", FormatFixed(judged->step_s * 1e3, 3),
                  absl::StrFormat("%.1f %%", judged->bubble_ratio * 100),
                  FormatBytes(judged->most_memory()), absl::StrCat(judged->most_staleness()),
                  DelayText(*judged), absl::StrJoin(LayerCounts(*judged), " ")});
  }
  return absl::StrCat(table.Render(), rejected.empty() ? "" : "\ncannot run:\n", rejected);
}

// What sets the time of a step, and what would help.
std::string ExplainJob(const JobPlan& plan, const Cluster& cluster) {
  if (!plan.fastest.has_value()) return "no candidate can run on this cluster\n";
  const JudgedCandidate& fastest = plan.candidates[*plan.fastest];
  const JudgedCandidate& smallest = plan.candidates[*plan.smallest];
  std::vector<std::string> names;
  for (const int worker : fastest.workers) names.push_back(cluster.workers[worker].name);
  return absl::StrCat(
      "fastest: ", NameOf(fastest.candidate), ": ", FormatFixed(fastest.step_s * 1e3, 3),
      " ms a step, ", absl::StrFormat("%.1f %% idle", fastest.bubble_ratio * 100), ", on ",
      absl::StrJoin(names, " "), "\nleast memory: ", NameOf(smallest.candidate), ": ",
      FormatBytes(smallest.most_memory()), " on the worker that needs most, ",
      FormatFixed(smallest.step_s * 1e3, 3), " ms a step\n",
      plan.in_time ? "" : "the budget was spent before all was tried: allow more with --budget\n");
}

nlohmann::ordered_json CandidateJson(const JudgedCandidate& judged, const Cluster& cluster) {
  nlohmann::ordered_json json = {{"method", judged.candidate.method},
                                 {"stages", judged.candidate.stages},
                                 {"microbatches", judged.candidate.microbatches},
                                 {"recomputes", judged.candidate.recomputes},
                                 {"replicas", judged.candidate.replicas}};
  if (!judged.runs()) {
    json["rejected"] = judged.rejected;
    return json;
  }
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (size_t i = 0; i < judged.workers.size(); ++i) {
    const WorkerMemory& memory = judged.memory[i];
    workers.push_back({{"worker", cluster.workers[judged.workers[i]].name},
                       {"memory_bytes", memory.total()},
                       {"weights", memory.weights + memory.moved_weights},
                       {"stashed_weights", memory.stashed_weights},
                       {"gradients", memory.gradients},
                       {"optimizer", memory.optimizer},
                       {"activations", memory.activations}});
  }
  json["step_seconds"] = judged.step_s;
  json["bubble_ratio"] = judged.bubble_ratio;
  json["stage_layers"] = LayerCounts(judged);
  json["staleness"] = judged.most_staleness();
  json["block_delay"] = nullptr;
  if (judged.block_delay.has_value()) {
    json["block_delay"] = {{"max", judged.block_delay->max}, {"mean", judged.block_delay->mean}};
  }
  json["workers"] = std::move(workers);
  return json;
}

nlohmann::ordered_json JobPlanJson(const JobPlan& plan, const Cluster& cluster) {
  nlohmann::ordered_json candidates = nlohmann::ordered_json::array();
  for (const JudgedCandidate& judged : plan.candidates) {
    candidates.push_back(CandidateJson(judged, cluster));
  }
  nlohmann::ordered_json json = {{"in_time", plan.in_time}, {"fastest", nullptr}};
  json["smallest"] = nullptr;
  if (plan.fastest.has_value()) json["fastest"] = *plan.fastest;
  if (plan.smallest.has_value()) json["smallest"] = *plan.smallest;
  json["candidates"] = std::move(candidates);
  return json;
}

// The file's profile, or one made now by the coordinator's workers.
absl::StatusOr<MeasuredCluster> Measured(const JobPlanOptions& options, const JobPlanInput& input,
                                         const v1::JobSpec& spec, Console& console) {
  if (options.coordinator.empty() == input.profile_path.empty()) {
    return absl::InvalidArgumentError(
        "expected either --profile FILE or --coordinator ADDRESS, whose workers are profiled");
  }
  if (!input.profile_path.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(input.profile_path));
    const bool of_cluster =
        absl::StartsWith(text, "devices:") || absl::StrContains(text, "\ndevices:");
    if (!of_cluster) {
      PENSTOCK_ASSIGN_OR_RETURN(v1::ModelProfile profile,
                                ParseModelProfile(text, input.profile_path));
      return MeasuredCluster{.profile = std::move(profile)};
    }
    PENSTOCK_ASSIGN_OR_RETURN(const v1::ClusterProfile profile,
                              ParseClusterProfile(text, input.profile_path));
    return ClusterOfProfile(profile);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  v1::ProfileSpec asked;
  const std::vector<int64_t> samples = SizesAround(job);
  asked.mutable_samples()->Assign(samples.begin(), samples.end());
  asked.set_seconds(LayerProfilerOptions().seconds);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ClusterProfile profile,
                            ProfileCluster(client, spec, asked, interrupt, console, RealClock()));
  return ClusterOfProfile(profile);
}

// What raced, in the order of `candidates`.
struct JobRace {
  std::vector<int> candidates;  // of the plan
  RaceResult result;

  std::optional<int> winner() const {
    if (!result.winner.has_value()) return std::nullopt;
    return candidates[*result.winner];
  }
};

// The candidates train on this machine, one after the other.
absl::StatusOr<JobRace> Race(const JobPlanOptions& options, const JobPlan& plan, Console& console) {
  constexpr int64_t kFirstSteps = 20;  // of the fastest
  constexpr int64_t kShareOfJob = 4;
  JobRace race = {.candidates = CandidatesToRace(plan, !options.methods.empty())};
  PENSTOCK_ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  const std::function<absl::Status()> may_go_on = [&interrupt] {
    return interrupt.Count() > 0 ? InterruptedError("interrupted; nothing was written")
                                 : absl::OkStatus();
  };
  std::vector<std::unique_ptr<ReferenceContestant>> contestants;
  std::vector<Racer> racers;
  for (const int candidate : race.candidates) {
    const JudgedCandidate& judged = plan.candidates[candidate];
    TrainJobOptions job = {.job = options.job, .reference = true};
    PENSTOCK_ASSIGN_OR_RETURN(const TrainJob train, PrepareTrainJob(RealFiles(), job));
    v1::JobSpec spec = judged.spec;
    *spec.mutable_data() = train.spec.data();
    contestants.push_back(
        std::make_unique<ReferenceContestant>(std::move(spec), train.data_root, may_go_on));
    racers.push_back({.name = judged.candidate.method,
                      .step_s = judged.step_s,
                      .contestant = contestants.back().get()});
  }
  const JudgedCandidate& fastest = plan.candidates[race.candidates.front()];
  const int64_t steps =
      options.race_steps > 0 ? options.race_steps : fastest.spec.training().steps() / kShareOfJob;
  WorkDisplay display("racer", console, RealClock());
  race.result = RunRace(
      racers, {.first_s = static_cast<double>(std::min(kFirstSteps, std::max<int64_t>(steps, 1))) *
                          fastest.step_s,
               .longest_s = static_cast<double>(std::max<int64_t>(steps, 1)) * fastest.step_s,
               .until_loss = options.until_loss,
               .progress = [&](int round, int racer, int all) {
                 display.Draw(racer, all, absl::StrCat("round ", round + 1));
               }});
  PENSTOCK_RETURN_IF_ERROR(may_go_on());
  return race;
}

std::string RaceText(const JobPlan& plan, const JobRace& race) {
  Table table({{"CANDIDATE"},
               {"STEP MS", Table::Align::kRight},
               {"ROUNDS", Table::Align::kRight},
               {"STEPS", Table::Align::kRight},
               {"SECONDS", Table::Align::kRight},
               {"LOSS", Table::Align::kRight},
               {"REACHED S", Table::Align::kRight},
               {""}});
  for (size_t i = 0; i < race.candidates.size(); ++i) {
    const JudgedCandidate& judged = plan.candidates[race.candidates[i]];
    const RacerResult& result = race.result.racers[i];
    table.AddRow({NameOf(judged.candidate), FormatFixed(judged.step_s * 1e3, 3),
                  absl::StrCat(result.rounds), absl::StrCat(result.steps),
                  FormatFixed(static_cast<double>(result.steps) * judged.step_s, 3),
                  result.failed.empty() ? FormatFixed(result.loss, 4) : "",
                  result.reached_s.has_value() ? FormatFixed(*result.reached_s, 3) : "",
                  race.winner() == race.candidates[i] ? "first" : result.failed});
  }
  return absl::StrCat("\nrace, by simulated time:\n", table.Render());
}

nlohmann::ordered_json RaceJson(const JobRace& race) {
  nlohmann::ordered_json racers = nlohmann::ordered_json::array();
  for (size_t i = 0; i < race.candidates.size(); ++i) {
    const RacerResult& result = race.result.racers[i];
    nlohmann::ordered_json racer = {{"candidate", race.candidates[i]}, {"rounds", result.rounds},
                                    {"steps", result.steps},           {"loss", result.loss},
                                    {"reached_seconds", nullptr},      {"failed", result.failed}};
    if (result.reached_s.has_value()) racer["reached_seconds"] = *result.reached_s;
    racers.push_back(std::move(racer));
  }
  nlohmann::ordered_json json = {{"winner", nullptr}, {"racers", std::move(racers)}};
  if (race.winner().has_value()) json["winner"] = *race.winner();
  return json;
}

void Print(const JobPlan& plan, const std::optional<JobRace>& race, const Cluster& cluster,
           const JobPlanOptions& options, bool json, Console& console) {
  if (json) {
    nlohmann::ordered_json printed = JobPlanJson(plan, cluster);
    if (race.has_value()) printed["race"] = RaceJson(*race);
    PrintJson(printed, console);
    return;
  }
  console.out << CandidatesText(plan, options.shows_all) << "\n"
              << ExplainJob(plan, cluster) << (race.has_value() ? RaceText(plan, *race) : "");
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
  app.add_option("--coordinator", options.coordinator,
                 "Of a job: HOST:PORT of a coordinator, whose workers are profiled and planned for")
      ->type_name("HOST:PORT")
      ->needs(job);
  app.add_option("--methods", options.methods,
                 "Of a job: the methods to try; default: all of the catalog")
      ->type_name("NAME[,NAME...]")
      ->delimiter(',')
      ->needs(job);
  app.add_flag("--all", options.shows_all, "Of a job: every candidate, not the best of each method")
      ->needs(job);
  CLI::Option* race = app.add_flag(
      "--race", options.races,
      "Of a job: let the fastest candidate of each kind train, and choose by loss over time");
  race->needs(job);
  app.add_option("--until", options.until_loss,
                 "Of a race: the training loss to reach; default: the lowest at the end")
      ->type_name("LOSS")
      ->check(CLI::PositiveNumber)
      ->needs(race);
  app.add_option("--race-steps", options.race_steps,
                 "Of a race: steps of the fastest candidate, at most; default: a quarter of the "
                 "job's")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->needs(race);
  app.add_option("-o,--output", options.output_path,
                 "Of a job: write the fastest, or the first of the race, as a job file")
      ->type_name("FILE")
      ->needs(job);
  app.add_option("--times", options.times_path,
                 "Of a job: write the times and links that the fastest was simulated on, for "
                 "--emulate")
      ->type_name("FILE")
      ->needs(job);
}

absl::Status RunJobPlan(const JobPlanOptions& options, JobPlanInput input, Console& console) {
  for (const std::string& path : {options.output_path, options.times_path}) {
    if (!path.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(path));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSpec complete, LoadJob(options.job));
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJob(options.job));
  PENSTOCK_ASSIGN_OR_RETURN(MeasuredCluster measured, Measured(options, input, complete, console));
  if (!input.cluster.workers.empty()) measured.cluster = std::move(input.cluster);
  if (measured.cluster.workers.empty()) {
    return absl::InvalidArgumentError(
        "the profile is of one device: say for which workers to plan, with --topology FILE or "
        "--workers N");
  }
  const PlanningInput planned = {.spec = std::move(document.spec),
                                 .profile = std::move(measured.profile),
                                 .cluster = std::move(measured.cluster)};
  absl::StatusOr<JobPlan> plan = absl::UnknownError("not planned");
  {
    WorkDisplay display("candidate", console, RealClock());
    TimeBudget budget(RealClock(), absl::Seconds(input.budget_s));
    plan = PlanJob(planned,
                   {.methods = options.methods,
                    .progress = [&](int done, int all) { display.Draw(done, all, ""); }},
                   budget);
  }
  if (!plan.ok()) return Annotate(plan.status(), options.job.path);
  if (!plan->fastest.has_value()) {
    Print(*plan, std::nullopt, planned.cluster, options, input.json, console);
    return FailedError("no candidate can run on this cluster");
  }
  std::optional<JobRace> race;
  if (options.races) {
    PENSTOCK_ASSIGN_OR_RETURN(race, Race(options, *plan, console));
  }
  Print(*plan, race, planned.cluster, options, input.json, console);
  if (race.has_value() && !race->winner().has_value()) {
    return FailedError("every candidate of the race failed");
  }
  const int chosen = race.has_value() ? *race->winner() : *plan->fastest;
  return WriteChosen(options, plan->candidates[chosen], console);
}

}  // namespace penstock
