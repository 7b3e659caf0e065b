#include "studies/experiments/internet_study.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "schedule/catalog/catalog.h"
#include "schedule/placements.h"
#include "schedule/simulate.h"

namespace penstock {
namespace {

constexpr double kBytesPerGigabit = 1e9 / 8;
constexpr double kEqual = 1e-4;
// Far more than a coordinator lists: a step of 4,096 microbatches on 1,024 stages.
constexpr int64_t kStudiedActionsMax = 40'000'000;

// Where the stages of a pipeline are, and the parts of the model that it has.
struct Placed {
  Topology topology;
  int parts = 0;
};

absl::StatusOr<Placed> PlaceOn(const Method& method, int hosts, int64_t microbatches) {
  if (method.placement == Placement::kRoundTrip) {
    return absl::InvalidArgumentError(absl::StrCat(
        method.name,
        " has every stage on all hosts, or sends its weights round them; the study is of methods "
        "whose weights stay where they are"));
  }
  const int parts = hosts * StagesPerWorkerMin(method.placement);
  PENSTOCK_ASSIGN_OR_RETURN(Topology topology, Place(method.placement, parts, hosts, microbatches));
  return Placed{std::move(topology), parts};
}

SimulationCosts CostsOn(const Topology& topology, const DeepStages& stages,
                        const InternetLinks& links) {
  const double bytes_per_second = links.gigabits * kBytesPerGigabit;
  SimulationCosts costs;
  costs.worker_links = WorkerLinks{
      .others = {.bytes_per_second = bytes_per_second, .latency_s = links.latency_ms * 1e-3},
      .card_bytes_per_second = bytes_per_second};
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const int part = topology[StageId(id)].part;
    const double input_bytes = part == 0 ? 0.0 : stages.output_bytes[part - 1];
    costs.stages.push_back(stages.costs[part]);
    costs.traffic.stages.push_back(
        {.output = stages.output_bytes[part], .grad_input = input_bytes, .input = input_bytes});
  }
  return costs;
}

// Returns steps enough for a steady state: methods that drain repeat at once, others have to fill the pipeline first.
int64_t StepsOf(const Method& method, int hosts, int64_t microbatches) {
  if (method.synchronous) return 3;
  return std::max<int64_t>(4, (8 * hosts + microbatches - 1) / microbatches);
}

// What is simulated of a method with one number of microbatches, in all networks alike.
struct Runnable {
  Schedule schedule;
  DeepStages stages;
};

absl::StatusOr<Runnable> Prepare(const DeepModel& model, const std::string& name, int hosts,
                                 int64_t microbatches) {
  PENSTOCK_ASSIGN_OR_RETURN(const Method* const method, FindMethod(name));
  PENSTOCK_ASSIGN_OR_RETURN(Placed placed, PlaceOn(*method, hosts, microbatches));
  Runnable runnable;
  PENSTOCK_ASSIGN_OR_RETURN(runnable.stages, CutDeepModel(model, placed.parts));
  const ScheduleOptions options = {.topology = std::move(placed.topology),
                                   .microbatches_per_step = microbatches,
                                   .step_actions_max = kStudiedActionsMax};
  PENSTOCK_ASSIGN_OR_RETURN(
      runnable.schedule,
      BuildSchedule(*method, options,
                    {.first = 0, .count = microbatches * StepsOf(*method, hosts, microbatches)}));
  return runnable;
}

absl::StatusOr<InternetSpeed> SpeedOf(const Runnable& runnable, const InternetLinks& links) {
  const Topology& topology = runnable.schedule.topology;
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result,
                            Simulate(runnable.schedule, CostsOn(topology, runnable.stages, links)));
  InternetSpeed speed = {.microbatch_s = result.steady_state_period_s};
  std::vector<int64_t> stashed(topology.workers);
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const StageCounts& counts = result.stages[id];
    speed.staleness = std::max<int64_t>(speed.staleness, counts.staleness.max);
    speed.versions = std::max(speed.versions, counts.versions_peak);
    stashed[topology.worker(StageId(id)).value] += counts.activations_peak;
  }
  speed.stashed = *std::max_element(stashed.begin(), stashed.end());
  double work_s = 0;  // of a microbatch; the time of updates is none of a bubble
  for (const StageCosts& stage : runnable.stages.costs) {
    work_s += stage.forward_s + stage.backward_input_s + stage.backward_weight_s;
  }
  speed.bubble_ratio = 1 - work_s / (speed.microbatch_s * topology.workers);
  return speed;
}

absl::Status CheckPositive(absl::string_view what, double value, bool may_be_zero = false) {
  if (std::isfinite(value) && (value > 0 || (may_be_zero && value == 0))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " must be ", may_be_zero ? "0 or more" : "above 0", " and finite, got ", value));
}

absl::Status CheckStudy(const InternetStudy& study) {
  if (study.hosts < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pipeline over a network needs at least 2 hosts, got ", study.hosts));
  }
  if (study.gigabits.empty() || study.latencies_ms.empty() || study.methods.empty()) {
    return absl::InvalidArgumentError(
        "the study needs at least one bandwidth, one latency and one method");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("the speed of the hosts", study.speed));
  if (study.blocks < 0 || study.samples < 0) {
    return absl::InvalidArgumentError(absl::StrCat("blocks and samples must be 0 or more, got ",
                                                   study.blocks, " and ", study.samples));
  }
  for (const double gigabits : study.gigabits) {
    PENSTOCK_RETURN_IF_ERROR(CheckPositive("a bandwidth in Gb/s", gigabits));
  }
  for (const double latency_ms : study.latencies_ms) {
    PENSTOCK_RETURN_IF_ERROR(CheckPositive("a latency in ms", latency_ms, /*may_be_zero=*/true));
  }
  for (const int64_t microbatches : study.microbatches) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckPositive("the microbatches of a step", static_cast<double>(microbatches)));
  }
  for (const std::string& method : study.methods) {
    PENSTOCK_RETURN_IF_ERROR(FindMethod(method).status());
  }
  return absl::OkStatus();
}

// Runs the grid, and tells it.
class Grid {
 public:
  Grid(const InternetStudy& study, const v1::ModelProfile& profile) : study_(study) {
    samples_ = study.samples > 0 ? study.samples : profile.shapes(0).sizes().rbegin()->samples();
    tokens_ = static_cast<double>(samples_ * profile.time_steps());
    if (study_.microbatches.empty()) study_.microbatches = {study.hosts, 4 * study.hosts};
    std::sort(study_.gigabits.begin(), study_.gigabits.end());
    std::sort(study_.latencies_ms.begin(), study_.latencies_ms.end());
    std::sort(study_.microbatches.begin(), study_.microbatches.end());
  }

  absl::Status Run(const v1::ModelProfile& profile, StudyContext& context) {
    PENSTOCK_ASSIGN_OR_RETURN(
        model_, DeepenModel(profile, samples_, study_.blocks, 2 * study_.hosts, study_.speed));
    const size_t networks = study_.gigabits.size() * study_.latencies_ms.size();
    context.Announce("simulating", static_cast<int64_t>(networks * study_.microbatches.size() *
                                                        study_.methods.size()));
    for (const int64_t microbatches : study_.microbatches) {
      bool any = false;
      for (const std::string& method : study_.methods) {
        const absl::StatusOr<Runnable> runnable =
            Prepare(model_, method, study_.hosts, microbatches);
        if (!runnable.ok()) {
          left_out_.push_back(absl::StrFormat("%s with %d microbatches (%s)", method, microbatches,
                                              std::string(runnable.status().message())));
          PENSTOCK_RETURN_IF_ERROR(context.ForEach(static_cast<int64_t>(networks), [](int64_t) {}));
          continue;
        }
        any = true;
        std::vector<absl::StatusOr<InternetSpeed>> speeds(networks,
                                                          absl::UnknownError("not simulated"));
        PENSTOCK_RETURN_IF_ERROR(context.ForEach(
            static_cast<int64_t>(networks),
            [&](int64_t network) { speeds[network] = SpeedOf(*runnable, LinksOf(network)); }));
        std::vector<InternetSpeed>& found = speeds_[{microbatches, method}];
        for (absl::StatusOr<InternetSpeed>& speed : speeds) {
          PENSTOCK_RETURN_IF_ERROR(speed.status());
          found.push_back(*speed);
        }
      }
      if (any) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("no method runs with ", microbatches, " microbatches on ", study_.hosts,
                       " hosts: ", absl::StrJoin(left_out_, "; ")));
    }
    return absl::OkStatus();
  }

  StudyResult Tell(const v1::ModelProfile& profile) const {
    StudyResult result{.title =
                           absl::StrFormat("Pipelines over the internet, %d hosts", study_.hosts)};
    result.settings = {
        {"device", profile.device()},
        {"speed", study_.speed},
        {"blocks", int64_t{model_.blocks}},
        {"blocks_measured", int64_t{model_.measured_blocks}},
        {"layers", static_cast<int64_t>(model_.layers.size())},
        {"gigabytes_of_gradients", model_.parameter_bytes * 1e-9},
        {"samples_in_a_microbatch", samples_},
        {"tokens_in_a_microbatch", static_cast<int64_t>(tokens_)},
        {"compute_only_tokens_per_second", Ceiling()},
    };
    for (const auto& [key, speeds] : speeds_) {
      const InternetSpeed& any = speeds.front();
      if (key.first != study_.microbatches.front()) continue;
      result.settings.emplace_back(
          key.second, absl::StrFormat("%d updates late, %d versions, %d stashed", any.staleness,
                                      any.versions, any.stashed));
    }
    if (!left_out_.empty()) {
      result.settings.emplace_back("left_out", absl::StrJoin(left_out_, "; "));
    }
    result.table.columns = {"microbatches",     "gigabits",   "latency_ms", "fastest",
                            "tokens_per_s",     "of_compute", "late",       "fastest_not_late",
                            "its_tokens_per_s", "behind"};
    for (const int64_t microbatches : study_.microbatches) {
      for (size_t network = 0; network < Networks(); ++network) {
        AddRow(microbatches, network, result.table);
      }
      result.charts.push_back(MapOf(microbatches, /*may_be_late=*/true));
      result.charts.push_back(MapOf(microbatches, /*may_be_late=*/false));
      for (const double gigabits : study_.gigabits) {
        result.charts.push_back(SpeedsOf(microbatches, gigabits));
      }
    }
    return result;
  }

 private:
  size_t Networks() const { return study_.gigabits.size() * study_.latencies_ms.size(); }
  InternetLinks LinksOf(int64_t network) const {
    const auto latencies = static_cast<int64_t>(study_.latencies_ms.size());
    return {study_.gigabits[network / latencies], study_.latencies_ms[network % latencies]};
  }

  // The tokens a second if all hosts always computed.
  double Ceiling() const {
    double pass_s = 0;
    for (const DeepLayer& layer : model_.layers) pass_s += layer.pass_s();
    return tokens_ * study_.hosts / pass_s;
  }

  double TokensPerSecond(const InternetSpeed& speed) const { return tokens_ / speed.microbatch_s; }

  struct Winner {
    std::string method;
    InternetSpeed speed;
  };
  std::optional<Winner> WinnerOf(int64_t microbatches, size_t network, bool may_be_late) const {
    std::optional<Winner> best;
    for (const std::string& method : study_.methods) {
      const auto found = speeds_.find({microbatches, method});
      if (found == speeds_.end()) continue;
      const InternetSpeed& speed = found->second[network];
      if (speed.staleness > 0 && !may_be_late) continue;
      if (best.has_value()) {
        const double ratio = speed.microbatch_s / best->speed.microbatch_s;
        const bool is_faster = ratio < 1 - kEqual;
        const bool is_fresher = ratio < 1 + kEqual && speed.staleness < best->speed.staleness;
        if (!is_faster && !is_fresher) continue;
      }
      best = Winner{method, speed};
    }
    return best;
  }

  void AddRow(int64_t microbatches, size_t network, StudyTable& table) const {
    const InternetLinks links = LinksOf(static_cast<int64_t>(network));
    const std::optional<Winner> best = WinnerOf(microbatches, network, /*may_be_late=*/true);
    const std::optional<Winner> fresh = WinnerOf(microbatches, network, /*may_be_late=*/false);
    const double tokens = TokensPerSecond(best->speed);
    std::vector<StudyCell> row = {
        microbatches,         links.gigabits, links.latency_ms,
        best->method,         tokens,         absl::StrFormat("%.1f %%", 100 * tokens / Ceiling()),
        best->speed.staleness};
    if (fresh.has_value()) {
      const double fresh_tokens = TokensPerSecond(fresh->speed);
      row.insert(row.end(), {fresh->method, fresh_tokens,
                             absl::StrFormat("%.1f %%", 100 * (1 - fresh_tokens / tokens))});
    } else {
      row.insert(row.end(), 3, std::string("-"));
    }
    table.rows.push_back(std::move(row));
  }

  std::string Setup(int64_t microbatches) const {
    return absl::StrFormat("%d hosts, %d microbatches in a step", study_.hosts, microbatches);
  }

  // Which method is the fastest where, as a large dot for every network.
  StudyChart MapOf(int64_t microbatches, bool may_be_late) const {
    LineChart chart{
        .title = may_be_late ? "The fastest method" : "The fastest without late updates",
        .subtitle = Setup(microbatches),
        .x_label = "latency, ms",
        .y_label = "bandwidth of a host, Gb/s",
        .x_log = true,
        .y_log = true};
    std::map<std::string, std::vector<ChartPoint>> points;
    for (size_t network = 0; network < Networks(); ++network) {
      const std::optional<Winner> winner = WinnerOf(microbatches, network, may_be_late);
      if (!winner.has_value()) continue;
      const InternetLinks links = LinksOf(static_cast<int64_t>(network));
      points[winner->method].push_back({.x = links.latency_ms,
                                        .y = links.gigabits,
                                        .low = links.gigabits,
                                        .high = links.gigabits});
    }
    for (auto& [method, at] : points) {
      chart.lines.push_back({.label = method, .points = std::move(at), .apart = true});
    }
    return {absl::StrCat(may_be_late ? "fastest-" : "fastest-not-late-", microbatches),
            std::move(chart)};
  }

  // How fast each method is over the latency.
  StudyChart SpeedsOf(int64_t microbatches, double gigabits) const {
    LineChart chart{.title = absl::StrFormat("Speed over latency at %g Gb/s", gigabits),
                    .subtitle = absl::StrCat(Setup(microbatches), "; dashed: late updates"),
                    .x_label = "latency, ms",
                    .y_label = "tokens a second",
                    .x_log = true};
    for (const std::string& method : study_.methods) {
      const auto found = speeds_.find({microbatches, method});
      if (found == speeds_.end()) continue;
      ChartLine line{
          .label = method, .dashed = found->second.front().staleness > 0, .marked = true};
      for (size_t network = 0; network < Networks(); ++network) {
        const InternetLinks links = LinksOf(static_cast<int64_t>(network));
        if (links.gigabits != gigabits) continue;
        const double tokens = TokensPerSecond(found->second[network]);
        line.points.push_back({links.latency_ms, tokens, tokens, tokens});
      }
      chart.lines.push_back(std::move(line));
    }
    return {absl::StrFormat("%g-gigabits-%d", gigabits, microbatches), std::move(chart)};
  }

  InternetStudy study_;
  int64_t samples_ = 0;
  double tokens_ = 0;  // of a microbatch
  DeepModel model_;
  std::map<std::pair<int64_t, std::string>, std::vector<InternetSpeed>> speeds_;  // by network
  std::vector<std::string> left_out_;
};

}  // namespace

absl::StatusOr<InternetSpeed> SimulateOnInternet(const DeepModel& model, const std::string& method,
                                                 int hosts, int64_t microbatches,
                                                 const InternetLinks& links) {
  PENSTOCK_ASSIGN_OR_RETURN(const Runnable runnable, Prepare(model, method, hosts, microbatches));
  return SpeedOf(runnable, links);
}

absl::StatusOr<StudyResult> RunInternetStudy(const InternetStudy& study,
                                             const v1::ModelProfile& profile,
                                             StudyContext& context) {
  PENSTOCK_RETURN_IF_ERROR(CheckStudy(study));
  Grid grid(study, profile);
  PENSTOCK_RETURN_IF_ERROR(grid.Run(profile, context));
  return grid.Tell(profile);
}

}  // namespace penstock
