// penstock plan: how a profiled model is best cut into stages.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "job/profile/cluster_spec.h"
#include "job/profile/model_profile.h"
#include "planner/dawnpiper/graph_plan.h"
#include "planner/graph/pipedream_profile.h"
#include "planner/graph/placement_planner.h"
#include "planner/graph/render_plan.h"
#include "planner/graph/stage_planner.h"
#include "planner/job/measured_cluster.h"
#include "planner/job/profiled_graph.h"
#include "services/cli/commands/commands.h"
#include "services/cli/commands/plan_job.h"
#include "services/cli/drawings.h"
#include "services/cli/json_output.h"
#include "services/cli/plan_output.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

constexpr double kBytesOfGigabit = 1e9 / 8;

struct PlanOptions {
  JobPlanOptions job;
  std::string profile;
  std::optional<int64_t> samples;
  std::string cluster;
  std::string workers = "4";
  bool names_workers = false;
  std::vector<double> gigabits = {10.0};
  std::string model = "consistent";
  bool straight = false;
  std::string versions = "stash";
  double optimizer_copies = 2;
  bool recompute = true;
  std::string goal = "period";
  std::string planner;  // empty: our own, or the job's
  std::string tensors = "each";
  std::optional<int> in_flight;
  double host_gigabytes = 12.0;
  double budget_s = 10.0;
  std::string svg_path;
  bool json = false;
};

// A cost model of planner/graph/cost_model.h, by its name here.
struct NamedModel {
  const char* name;
  StageCostModel (*make)(double bytes_per_second);
  CutRule cuts;
};

constexpr NamedModel kModels[] = {
    {"consistent", ConsistentModel, CutRule::kIdeals},
    {"pipedream-2018", PipeDream2018Model, CutRule::kIdeals},
    {"pipedream-2019", PipeDream2019Model, CutRule::kIdeals},
    {"pipedream-code",
     [](double bytes_per_second) { return PipeDreamReleasedModel(bytes_per_second, true); },
     CutRule::kAntichains},
};

// "16", or by levels from the lowest up, "4x2".
absl::StatusOr<std::vector<int>> ParseWorkers(const std::string& text) {
  std::vector<int> levels;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    int workers = 0;
    if (!absl::SimpleAtoi(part, &workers) || workers < 1 || workers > kPlanWorkersMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--workers: is ", text, "; expected a number from 1 to ", kPlanWorkersMax,
          ", or one for each level from the lowest up, as in 4x2 (2 hosts of 4 workers)"));
    }
    levels.push_back(workers);
  }
  return levels;
}

absl::StatusOr<StagePlanRequest> RequestOf(const PlanOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int> workers, ParseWorkers(options.workers));
  if (options.gigabits.size() != workers.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--gigabits: has ", options.gigabits.size(), " numbers; expected one for each of the ",
        workers.size(), " levels of --workers ", options.workers));
  }
  const NamedModel& named =
      *std::find_if(std::begin(kModels), std::end(kModels),
                    [&](const NamedModel& model) { return options.model == model.name; });
  StagePlanRequest request = {.cuts = named.cuts};
  for (size_t level = 0; level < workers.size(); ++level) {
    StageCostModel model = named.make(options.gigabits[level] * kBytesOfGigabit);
    model.replicates = !options.straight;
    request.levels.push_back({.workers = workers[level], .model = model});
  }
  return request;
}

constexpr std::pair<const char*, KeptVersions> kVersions[] = {
    {"single", KeptVersions::kOne},
    {"double-buffer", KeptVersions::kTwo},
    {"stash", KeptVersions::kInFlight},
};

std::vector<LayerMemory> MemoryOf(const PlanOptions& options, const PlanInput& input) {
  return input.memory.empty() ? GuessMemory(input.graph, options.optimizer_copies) : input.memory;
}

constexpr char kOwnPlanner[] = "penstock";
constexpr char kBestCutsPlanner[] = "best-cuts";

// Whether a graph is planned with one stage for each worker of limited memory (planner/dawnpiper/).
bool PlansChain(const PlanOptions& options) {
  return !options.planner.empty() && options.planner != kOwnPlanner;
}

constexpr std::pair<const char*, TensorChoice> kTensorChoices[] = {
    {"each", TensorChoice::kPerTensor},
    {"stage", TensorChoice::kWholeStage},
};

ChainPlanRequest ChainRequestOf(const PlanOptions& options, const PlanInput& input,
                                const Cluster& cluster, const MemoryRule& rule) {
  const auto* const choice =
      std::find_if(std::begin(kTensorChoices), std::end(kTensorChoices),
                   [&](const auto& known) { return options.tensors == known.first; });
  return {.cluster = cluster,
          .memory = MemoryOf(options, input),
          .rule = rule,
          .planner = options.planner == kDawnPiperName ? ChainPlanner::kDawnPiper
                                                       : ChainPlanner::kBestCuts,
          .choice = choice->second,
          .host_bytes_per_second = options.host_gigabytes * 1e9};
}

absl::StatusOr<StagePlan> PlanGraph(const PlanOptions& options, const PlanInput& input,
                                    const Cluster& cluster, TimeBudget& budget) {
  if (cluster.workers.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const StagePlanRequest request, RequestOf(options));
    return PlanStages(input.graph, request, budget);
  }
  const auto* const versions =
      std::find_if(std::begin(kVersions), std::end(kVersions),
                   [&](const auto& known) { return options.versions == known.first; });
  MemoryRule rule = {.versions = versions->second, .may_recompute = options.recompute};
  if (options.in_flight.has_value()) rule.in_flight_max = *options.in_flight;
  if (PlansChain(options)) {
    return PlanChain(input.graph, ChainRequestOf(options, input, cluster, rule));
  }
  return PlanPlacement(
      input.graph,
      {.cluster = cluster,
       .memory = MemoryOf(options, input),
       .rule = rule,
       .goal = options.goal == "period" ? PlacementGoal::kPeriod : PlacementGoal::kMemory},
      budget);
}

absl::StatusOr<PlanInput> OfModelProfile(const std::string& path, std::optional<int64_t> samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelProfile profile, ReadModelProfile(path));
  const auto& sizes = profile.shapes(0).sizes();
  const int64_t of_microbatch = samples.value_or(sizes.rbegin()->samples());
  absl::StatusOr<ProfiledGraph> graph = GraphOfProfile(profile, of_microbatch);
  if (!graph.ok()) return Annotate(graph.status(), absl::StrCat(path, ": --samples"));
  return PlanInput{.graph = std::move(graph->graph),
                   .memory = std::move(graph->memory),
                   .what = absl::StrCat(path, ", ", profile.layers_size(), " layers, ",
                                        of_microbatch, " samples, ", profile.device())};
}

absl::StatusOr<PlanInput> OfPipeDreamProfile(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text,
                            RealFiles().Read(path, kPipeDreamProfileBytesMax));
  absl::StatusOr<PipeDreamProfile> profile = ParsePipeDreamProfile(text);
  if (!profile.ok()) return Annotate(profile.status(), path);
  LayerGraph graph = WithoutInputsAndUnreadItems(*profile).graph;
  std::string what = absl::StrCat(path, ", ", graph.nodes.size(), " layers");
  return PlanInput{.graph = std::move(graph), .memory = {}, .what = std::move(what)};
}

// A file named .yaml or .yml is one that `penstock profile` wrote, of whose layers `samples` are the microbatch's; any
// other is PipeDream's graph.txt, without the nodes that load data and those that nobody reads.
absl::StatusOr<PlanInput> ReadPlanInput(const std::string& path, std::optional<int64_t> samples) {
  if (absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml")) {
    return OfModelProfile(path, samples);
  }
  if (samples.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--samples: ", path, " is of minibatches of one size, that of its profiler"));
  }
  return OfPipeDreamProfile(path);
}

// The workers of the cluster file; without one, none.
absl::StatusOr<Cluster> ReadCluster(const PlanOptions& options) {
  if (options.cluster.empty()) return Cluster();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ClusterSpec spec, ReadClusterSpec(options.cluster));
  return ClusterOf(spec);
}

// Workers that are alike, each with a host to itself.
absl::StatusOr<Cluster> AlikeWorkers(const PlanOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int> workers, ParseWorkers(options.workers));
  if (workers.size() != 1 || options.gigabits.size() != 1) {
    return absl::InvalidArgumentError(
        "--workers: levels are for graphs; a job's hosts are named by --cluster FILE");
  }
  const double bytes_per_second = options.gigabits.front() * kBytesOfGigabit;
  return UniformCluster(workers.front(), 1, bytes_per_second, bytes_per_second);
}

absl::Status RunForJob(const PlanOptions& options, Console& console) {
  if (options.planner == kBestCutsPlanner) {
    return absl::InvalidArgumentError(
        "--planner: best-cuts is for graphs; penstock, the planner of jobs, tries these cuts too");
  }
  Cluster cluster;
  if (!options.cluster.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(cluster, ReadCluster(options));
  } else if (options.names_workers) {
    PENSTOCK_ASSIGN_OR_RETURN(cluster, AlikeWorkers(options));
  }
  return RunJobPlan(options.job,
                    {.profile_path = options.profile,
                     .cluster = std::move(cluster),
                     .planner = options.planner,
                     .budget_s = options.budget_s,
                     .svg_path = options.svg_path,
                     .json = options.json},
                    console);
}

absl::Status RunPlan(const PlanOptions& options, Console& console) {
  if (!options.job.job.path.empty()) return RunForJob(options, console);
  if (options.profile.empty()) {
    return absl::InvalidArgumentError("--profile: is missing; expected a FILE to plan");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const PlanInput input, ReadPlanInput(options.profile, options.samples));
  PENSTOCK_ASSIGN_OR_RETURN(const Cluster cluster, ReadCluster(options));
  if (PlansChain(options) && cluster.workers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--planner: ", options.planner,
                     " cuts for the memory of workers; expected --cluster FILE with them"));
  }
  if (!options.svg_path.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(options.svg_path));
  TimeBudget budget(RealClock(), absl::Seconds(options.budget_s));
  const absl::StatusOr<StagePlan> plan = PlanGraph(options, input, cluster, budget);
  if (!plan.ok()) return Annotate(plan.status(), options.profile);
  if (options.json) {
    PrintJson(PlanJson(input, cluster, *plan), console);
  } else {
    console.out << PlanText(input, cluster, *plan);
  }
  if (options.svg_path.empty()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      WriteTextFile(options.svg_path, RenderPlanSvg(input.graph, *plan, input.what)));
  console.err << "wrote " << options.svg_path << "\n";
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclarePlan(CLI::App& app) {
  const auto options = std::make_shared<PlanOptions>();
  AddJobPlanOptions(app, options->job);
  app.add_option("--profile", options->profile,
                 "A profile that `penstock profile -o` wrote (.yaml), or PipeDream's graph.txt")
      ->type_name("FILE");
  app.add_option("--samples", options->samples,
                 "Samples in a microbatch, for a .yaml; default: the largest measured")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  CLI::Option* cluster = app.add_option(
      "--cluster", options->cluster,
      "A file with the workers, their speed and memory, and the network between them");
  cluster->type_name("FILE");
  CLI::Option* workers = app.add_option(
      "--workers", options->workers,
      "Equal workers, or those of each level from the lowest up: 4x2 is 2 hosts of 4");
  workers->type_name("N[xN...]")->capture_default_str()->excludes(cluster);
  app.add_option("--gigabits", options->gigabits,
                 "Gigabits a second of a worker's link, one number for each level")
      ->type_name("G[,G...]")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->excludes(cluster);
  std::vector<std::string> models;
  for (const NamedModel& model : kModels) models.emplace_back(model.name);
  app.add_option("--model", options->model,
                 "The costs of stages and links: our own, or those of PipeDream's papers or code")
      ->type_name("NAME")
      ->check(CLI::IsMember(models))
      ->capture_default_str()
      ->excludes(cluster);
  app.add_flag("--straight", options->straight, "One worker for each stage, no replicas")
      ->excludes(cluster);
  std::vector<std::string> versions;
  for (const auto& [name, rule] : kVersions) versions.emplace_back(name);
  app.add_option(
         "--weights", options->versions,
         "With --cluster: the weight versions of a stage, one for every minibatch in flight "
         "(stash), two or one")
      ->type_name("NAME")
      ->check(CLI::IsMember(versions))
      ->capture_default_str()
      ->needs(cluster);
  app.add_option("--optimizer-copies", options->optimizer_copies,
                 "With --cluster and a graph.txt: the optimizer's state, in copies of the "
                 "parameters; 2 is Adam's")
      ->type_name("N")
      ->check(CLI::Range(0.0, 16.0))
      ->capture_default_str()
      ->needs(cluster);
  app.add_flag("!--no-recompute", options->recompute,
               "With --cluster: no stage does its forwards again to fit into memory")
      ->needs(cluster);
  app.add_option("--goal", options->goal,
                 "With --cluster: the shortest period, or the least memory on the fullest worker")
      ->type_name("NAME")
      ->check(CLI::IsMember({"period", "memory"}))
      ->capture_default_str()
      ->needs(cluster);
  app.add_option(
         "--planner", options->planner,
         "Who cuts: penstock (the default, or the job's planning.planner), dawnpiper "
         "(arXiv 2505.05856), or for a graph best-cuts, the best under the same costs; both "
         "have one stage on each worker")
      ->type_name("NAME")
      ->check(CLI::IsMember({kOwnPlanner, kDawnPiperName, kBestCutsPlanner}));
  app.add_option("--tensors", options->tensors,
                 "With --cluster and --planner dawnpiper or best-cuts: what is kept, recomputed or "
                 "swapped, each tensor or all of a stage")
      ->type_name("NAME")
      ->check(CLI::IsMember({"each", "stage"}))
      ->capture_default_str()
      ->needs(cluster);
  app.add_option("--host-gigabytes", options->host_gigabytes,
                 "Likewise: gigabytes a second of a worker's copies to its host's memory, each "
                 "way; 0: no tensor is swapped")
      ->type_name("G")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->needs(cluster);
  app.add_option("--in-flight", options->in_flight,
                 "With --cluster: the most microbatches in flight, as many as a step has; "
                 "default: no limit")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->needs(cluster);
  app.add_option("--budget", options->budget_s,
                 "Seconds to plan; the best plan found by then counts")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
  app.add_option("--svg", options->svg_path, "Draw the plan")->type_name("FILE");
  app.add_flag("--json", options->json, "Print JSON");
  return [options, workers](Console& console) {
    options->names_workers = workers->count() > 0;
    return RunPlan(*options, console);
  };
}

}  // namespace penstock
