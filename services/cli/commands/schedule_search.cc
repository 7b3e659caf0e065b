#include "services/cli/commands/schedule_search.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "schedule/catalog/catalog.h"
#include "schedule/digest.h"
#include "schedule/search.h"
#include "schedule/simulate.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "services/cli/cost_options.h"
#include "services/cli/drawings.h"
#include "services/cli/json_output.h"
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

// Returns the placement of one stage on each worker.
absl::StatusOr<Topology> StraightOf(const ScheduleSearchOptions& options) {
  if (options.replicas.empty()) return StraightPipeline(options.stages);
  std::vector<int32_t> replicas = options.replicas;
  if (replicas.size() == 1) replicas.resize(options.stages, replicas.front());
  if (replicas.size() != static_cast<size_t>(options.stages)) {
    return absl::InvalidArgumentError(absl::StrCat("--replicas has ", replicas.size(),
                                                   " numbers, but --stages is ", options.stages,
                                                   "; give one number, or one for each stage"));
  }
  return PlaceReplicas(SearchedMethod(), replicas);
}

// Returns the placements that may hold this many stages on each worker.
absl::StatusOr<std::vector<std::pair<absl::string_view, Topology>>> PlacementsOf(
    const ScheduleSearchOptions& options) {
  if (options.stages % options.stages_per_worker != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stages ", options.stages, " is not a multiple of the ",
                     options.stages_per_worker, " stages that each worker holds"));
  }
  const int32_t workers = options.stages / options.stages_per_worker;
  std::vector<std::pair<absl::string_view, Topology>> placements;
  if (options.stages_per_worker == 1) {
    PENSTOCK_ASSIGN_OR_RETURN(Topology straight, StraightOf(options));
    placements.emplace_back("straight", std::move(straight));
  } else if (!options.replicas.empty()) {
    return absl::InvalidArgumentError(
        "--replicas is for stages that are each alone on a worker; leave out --stages-per-worker");
  } else {
    placements.emplace_back("looped", LoopedPipeline(options.stages, workers));
  }
  if (options.stages_per_worker == 2) placements.emplace_back("V", VPipeline(workers));
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
  std::string text = absl::StrFormat(
      "searched, %d stages on %d workers (%s), %d microbatches: length %g, bubble %s\n",
      topology.depth(), topology.workers, found.placement, search.schedule.range.count,
      search.makespan_s, FormatPercent(simulated.bubble_ratio));
  if (topology.form == Topology::Form::kReplicas) {
    absl::StrAppendFormat(&text, "with the reductions of replicas, which wait for each other: %g\n",
                          simulated.makespan_s);
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
                 "each; default: the most that one of 1f1b keeps, without replicas as many as "
                 "there are stages")
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
