#include "services/cli/commands/schedule_search.h"

#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "job/keys/limits.h"
#include "schedule/catalog/catalog.h"
#include "schedule/digest.h"
#include "schedule/search.h"
#include "schedule/simulate.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "services/cli/cost_options.h"
#include "services/cli/drawings.h"
#include "services/cli/json_output.h"
#include "services/cli/schedule_source.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

struct ScheduleSearchOptions {
  int32_t stages = 4;
  int32_t stages_per_worker = 1;
  std::vector<int32_t> replicas;  // of each stage, or one number for all; empty: one
  int64_t microbatches = 8;
  CostOptions costs;
  std::vector<int64_t> memory;  // empty: the default of SearchOptions
  std::optional<int64_t> moves;
  uint64_t seed = 0;
  std::string output;
  DrawingOptions drawing;
  bool json = false;
};

struct Found {
  absl::string_view placement;
  SearchResult search;
};

// A placement, and a synchronous method that has it.
struct NamedPlacement {
  absl::string_view name;
  absl::string_view method;
  int32_t stages_per_worker_min;
  int32_t stages_per_worker_max;
};
constexpr NamedPlacement kPlacements[] = {
    {"straight", "1f1b", 1, 1},
    {"looped", "looped-bfs", 2, std::numeric_limits<int32_t>::max()},
    {"V", "zb-v", 2, 2}};

// Returns the replicas of each stage; empty: one of each.
absl::StatusOr<std::vector<int32_t>> AskedReplicas(const ScheduleSearchOptions& options) {
  if (options.replicas.empty()) return std::vector<int32_t>();
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int32_t> replicas,
                            ReplicasOfStages(options.replicas, options.stages));
  const auto workers =
      std::accumulate(replicas.begin(), replicas.end(), int64_t{0}) / options.stages_per_worker;
  if (workers <= kReplicatedWorkersMax) return replicas;
  return absl::InvalidArgumentError(absl::StrCat("--replicas takes ", workers, " workers; at most ",
                                                 kReplicatedWorkersMax, " are possible"));
}

// Returns the placements that may hold this many stages on each worker.
absl::StatusOr<std::vector<std::pair<absl::string_view, Topology>>> PlacementsOf(
    const ScheduleSearchOptions& options) {
  if (options.stages % options.stages_per_worker != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stages ", options.stages, " is not a multiple of the ",
                     options.stages_per_worker, " stages that each worker holds"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> replicas, AskedReplicas(options));
  const int32_t workers = options.stages / options.stages_per_worker;
  std::vector<std::pair<absl::string_view, Topology>> placements;
  const int32_t each = options.stages_per_worker;
  for (const NamedPlacement& named : kPlacements) {
    if (each < named.stages_per_worker_min || each > named.stages_per_worker_max) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const Method* const method, FindMethod(named.method));
    PENSTOCK_ASSIGN_OR_RETURN(
        Topology topology,
        replicas.empty() ? Place(method->placement, options.stages, workers, options.microbatches)
                         : PlaceReplicas(*method, replicas, each));
    placements.emplace_back(named.name, std::move(topology));
  }
  return placements;
}

absl::StatusOr<std::vector<int64_t>> MemoryOf(const ScheduleSearchOptions& options,
                                              int32_t workers) {
  if (options.memory.size() == 1) return std::vector<int64_t>(workers, options.memory[0]);
  if (options.memory.empty() || options.memory.size() == static_cast<size_t>(workers)) {
    return options.memory;
  }
  return absl::InvalidArgumentError(absl::StrCat("--memory: has ", options.memory.size(),
                                                 " numbers; expected one, or one for each of ",
                                                 workers, " workers"));
}

// The shorter one of what each placement can do.
absl::StatusOr<Found> Search(const ScheduleSearchOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto placements, PlacementsOf(options));
  std::optional<Found> best;
  for (const auto& [name, topology] : placements) {
    SearchOptions search{.moves = options.moves,
                         .seed = options.seed,
                         .channel_capacity = options.costs.capacity.value_or(kChannelCapacity)};
    PENSTOCK_ASSIGN_OR_RETURN(search.costs, CostsOf(options.costs, topology));
    PENSTOCK_ASSIGN_OR_RETURN(search.activations_max, MemoryOf(options, topology.workers));
    PENSTOCK_ASSIGN_OR_RETURN(SearchResult result,
                              SearchSchedule(topology, options.microbatches, search));
    if (!best || result.makespan_s < best->search.makespan_s) best = {name, std::move(result)};
  }
  return *std::move(best);
}

nlohmann::ordered_json FoundJson(const Found& found, const SimulationResult& simulated) {
  using Json = nlohmann::ordered_json;
  const SearchResult& search = found.search;
  const Topology& topology = search.schedule.topology;
  Json per_stage = Json::array();
  for (int32_t stage = 0; stage < topology.stages(); ++stage) {
    per_stage.push_back({{"stage", stage},
                         {"worker", topology.table[stage].worker.value},
                         {"activations_peak", simulated.stages[stage].activations_peak}});
  }
  const bool in_catalog = !search.catalog_method.empty();
  return {{"stages", topology.depth()},
          {"replicas", ReplicasOf(topology)},
          {"workers", topology.workers},
          {"placement", found.placement},
          {"microbatches", search.schedule.range.count},
          {"makespan", search.makespan_s},
          {"makespan_with_reductions", simulated.makespan_s},
          {"bound", search.bound_s},
          {"gap_ratio", search.gap()},
          {"bubble_ratio", simulated.bubble_ratio},
          {"catalog_method", in_catalog ? Json(search.catalog_method) : Json()},
          {"catalog_makespan", in_catalog ? Json(search.catalog_makespan_s) : Json()},
          {"digest", DigestOf(search.schedule)},
          {"per_stage", per_stage}};
}

std::string FoundText(const Found& found, const SimulationResult& simulated) {
  const SearchResult& search = found.search;
  const Topology& topology = search.schedule.topology;
  const std::string bubble = absl::StrCat("bubble ", FormatPercent(simulated.bubble_ratio), "\n");
  const bool has_replicas = topology.form == Topology::Form::kReplicas;
  std::string text = absl::StrFormat(
      "searched, %d stages on %d workers (%s), %d microbatches: length %g%s", topology.depth(),
      topology.workers, found.placement, search.schedule.range.count, search.makespan_s,
      has_replicas ? "\n" : absl::StrCat(", ", bubble));
  if (has_replicas) {
    absl::StrAppendFormat(
        &text, "with the reductions, at which replicas wait for each other, a step takes %g, %s",
        simulated.makespan_s, bubble);
  }
  absl::StrAppendFormat(&text, "no order is shorter than %g; the gap is %s\n", search.bound_s,
                        FormatPercent(search.gap()));
  if (search.catalog_method.empty()) {
    absl::StrAppend(&text, "no synchronous method of the catalog fits into the memory\n");
  } else {
    absl::StrAppendFormat(&text, "the best of the catalog is %s with length %g, %s more\n",
                          search.catalog_method, search.catalog_makespan_s,
                          FormatPercent(search.catalog_makespan_s / search.makespan_s - 1));
  }
  Table table({{"STAGE", Table::Align::kRight},
               {"WORKER", Table::Align::kRight},
               {"ACTIVATIONS", Table::Align::kRight}});
  for (int32_t stage = 0; stage < topology.stages(); ++stage) {
    table.AddRow({absl::StrCat(stage), absl::StrCat(topology.table[stage].worker.value),
                  absl::StrCat(simulated.stages[stage].activations_peak)});
  }
  return absl::StrCat(text, "\n", table.Render(), "\n");
}

absl::Status RunScheduleSearch(const ScheduleSearchOptions& options, Console& console) {
  PENSTOCK_RETURN_IF_ERROR(CheckCanDraw(options.drawing));
  if (!options.output.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(options.output));
  PENSTOCK_ASSIGN_OR_RETURN(const Found found, Search(options));
  const Schedule& schedule = found.search.schedule;
  PENSTOCK_RETURN_IF_ERROR(Verify(schedule).status());
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationCosts costs, CostsOf(options.costs, schedule.topology));
  PENSTOCK_ASSIGN_OR_RETURN(
      const SimulationResult simulated,
      Simulate(schedule, costs,
               {.channel_capacity = options.costs.capacity, .timeline_spans_max = kDrawnSpansMax}));
  if (!options.output.empty()) {
    PENSTOCK_RETURN_IF_ERROR(WriteTextFile(options.output, PrintSchedule(schedule)));
    console.err << "wrote " << options.output << "\n";
  }
  if (options.json) {
    PrintJson(FoundJson(found, simulated), console);
  } else {
    console.out << FoundText(found, simulated);
  }
  DrawingOptions drawing = options.drawing;
  drawing.text = !options.json;
  return Draw(simulated, schedule, drawing, console);
}

}  // namespace

CommandRunner DeclareScheduleSearch(CLI::App& app) {
  const auto options = std::make_shared<ScheduleSearchOptions>();
  app.add_option("--stages", options->stages, "Stages of the pipeline")
      ->type_name("S")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--stages-per-worker", options->stages_per_worker,
                 "With 2 or more, each worker takes stages in turn (looped); 2 may also be a V")
      ->type_name("V")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--replicas", options->replicas,
                 "Workers that hold each stage, for all or one number for each")
      ->type_name("R[,R...]")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--microbatches", options->microbatches, "Microbatches in a step")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kSearchPassesMax))
      ->capture_default_str();
  AddCostOptions(app, options->costs);
  app.add_option("--memory", options->memory,
                 "Activations that a worker may keep between F and W, for all workers or one for "
                 "each; default: what the stage of 1f1b keeps that keeps most; without replicas "
                 "that is the number of stages")
      ->type_name("N[,N...]")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}));
  app.add_option("--moves", options->moves,
                 "Moves that the search tries; default: 200000, fewer for long steps")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}));
  app.add_option("--seed", options->seed, "Seed of the search")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("-o,--output", options->output,
                 "Write the schedule to this file, for pipeline.schedule_file of a job")
      ->type_name("FILE");
  app.add_option("--svg", options->drawing.svg_path, "Draw the timeline into this file")
      ->type_name("FILE");
  app.add_option("--trace", options->drawing.trace_path,
                 "Write the timeline for ui.perfetto.dev or chrome://tracing")
      ->type_name("FILE.json");
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunScheduleSearch(*options, console); };
}

}  // namespace penstock
