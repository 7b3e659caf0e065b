#include "studies/experiments/pipedream_study.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "planner/graph/pipedream_profile.h"
#include "planner/graph/stage_planner.h"
#include "studies/experiments/parallel_training.h"
#include "studies/experiments/published_pipedream.h"

namespace penstock {
namespace {

constexpr double kBytesOfGigabit = 1e9 / 8;
constexpr double kMegabyte = 1e6;
constexpr int64_t kGpipeMinibatchesPerStage = 4;
// Plans must not depend on the machine, so none is cut short.
constexpr absl::Duration kPlanningTime = absl::Hours(24);

// What a row of the table is of. Ordered by the model's place among the models.
struct Setting {
  size_t model = 0;
  int samples = 0;
  int workers = 0;
  double gigabits_per_second = 0;

  friend bool operator<(const Setting& one, const Setting& other) {
    const auto key = [](const Setting& setting) {
      // The larger minibatch, which was profiled, comes first.
      return std::tuple(setting.model, -setting.samples, setting.workers,
                        setting.gigabits_per_second);
    };
    return key(one) < key(other);
  }
};

struct FourWays {
  std::string plan;  // "7-1", "straight 4"
  int64_t straight_stages = 0;
  double one_worker_s = 0;
  MinibatchCost data_parallel;
  MinibatchCost reduce_after;  // data parallelism of this runtime
  MinibatchCost model_parallel;
  MinibatchCost gpipe;
  MinibatchCost pipedream;

  double OverOne(const MinibatchCost& cost) const { return one_worker_s / cost.seconds; }
  double OverDataParallel() const { return data_parallel.seconds / pipedream.seconds; }
  double BytesSaved() const { return 1 - pipedream.bytes / data_parallel.bytes; }
};

// PipeDream's own notation: numbers of replicas, and "straight" where each stage has one.
std::string NotationOf(const StagePlan& plan) {
  const bool straight =
      plan.stages.size() > 1 && plan.workers_used == static_cast<int>(plan.stages.size());
  return straight ? absl::StrCat("straight ", plan.workers_used) : ReplicasText(plan);
}

absl::StatusOr<StagePlan> PlanOf(const LayerGraph& graph, int workers,
                                 const StageCostModel& model) {
  TimeBudget budget(RealClock(), kPlanningTime);
  return PlanStages(graph, FlatRequest(workers, model), budget);
}

// The fastest in simulated time of the best plans under several cost models, and of data parallelism.
absl::Status SimulatePipeDream(const LayerGraph& graph, int workers, double bytes_per_second,
                               FourWays& outcome) {
  std::vector<StagePlan> plans(1);
  plans[0].stages = {ReplicatedModel(graph, workers)};
  plans[0].workers_used = workers;
  for (const StageCostModel& model :
       {ConsistentModel(bytes_per_second), PipeDream2018Model(bytes_per_second),
        PipeDream2019Model(bytes_per_second)}) {
    PENSTOCK_ASSIGN_OR_RETURN(plans.emplace_back(), PlanOf(graph, workers, model));
  }
  for (const StagePlan& plan : plans) {
    PENSTOCK_ASSIGN_OR_RETURN(const MinibatchCost cost,
                              SimulatePipeline(graph, {.method = "pipedream",
                                                       .stages = plan.stages,
                                                       .bytes_per_second = bytes_per_second}));
    if (!outcome.plan.empty() && cost.seconds >= outcome.pipedream.seconds) continue;
    outcome.plan = NotationOf(plan);
    outcome.pipedream = cost;
  }
  return absl::OkStatus();
}

absl::StatusOr<FourWays> TrainInFourWays(const LayerGraph& graph, const Setting& setting) {
  const double bytes_per_second = setting.gigabits_per_second * kBytesOfGigabit;
  FourWays outcome = {
      .one_worker_s = TotalWorkS(graph),
      .data_parallel = OverlappedDataParallelism(graph, setting.workers, bytes_per_second)};
  PENSTOCK_RETURN_IF_ERROR(SimulatePipeDream(graph, setting.workers, bytes_per_second, outcome));
  const PlannedStage replicated = ReplicatedModel(graph, setting.workers);
  PENSTOCK_ASSIGN_OR_RETURN(outcome.reduce_after,
                            SimulatePipeline(graph, {.method = "gpipe",
                                                     .stages = {&replicated, 1},
                                                     .minibatches_per_step = setting.workers,
                                                     .bytes_per_second = bytes_per_second}));
  StageCostModel model = ConsistentModel(bytes_per_second);
  model.replicates = false;
  PENSTOCK_ASSIGN_OR_RETURN(const StagePlan straight, PlanOf(graph, setting.workers, model));
  outcome.straight_stages = straight.workers_used;
  const auto drains_after = [&](int64_t minibatches) {
    return SimulatePipeline(graph, {.method = "gpipe",
                                    .stages = straight.stages,
                                    .minibatches_per_step = minibatches,
                                    .bytes_per_second = bytes_per_second});
  };
  PENSTOCK_ASSIGN_OR_RETURN(outcome.model_parallel, drains_after(1));
  PENSTOCK_ASSIGN_OR_RETURN(outcome.gpipe,
                            drains_after(kGpipeMinibatchesPerStage * outcome.straight_stages));
  return outcome;
}

std::optional<Setting> SettingOf(const PublishedSpeed& published, const PipeDreamStudy& study) {
  for (size_t model = 0; model < study.models.size(); ++model) {
    if (study.models[model].profile != published.profile) continue;
    return Setting{.model = model,
                   .samples = published.samples.value_or(study.models[model].samples),
                   .workers = published.workers,
                   .gigabits_per_second = published.gigabits_per_second};
  }
  return std::nullopt;
}

std::vector<Setting> SettingsOf(const PipeDreamStudy& study) {
  std::map<Setting, bool> settings;  // a set
  for (size_t model = 0; model < study.models.size(); ++model) {
    if (!study.models[model].in_grid) continue;
    for (const int workers : study.workers) {
      for (const double gigabits : study.gigabits_per_second) {
        settings[{model, study.models[model].samples, workers, gigabits}] = true;
      }
    }
  }
  for (const PublishedSpeed& published : PublishedSpeeds()) {
    const std::optional<Setting> setting = SettingOf(published, study);
    if (setting.has_value()) settings[*setting] = true;
  }
  std::vector<Setting> list;
  for (const auto& [setting, in] : settings) list.push_back(setting);
  return list;
}

bool IsNear(double here, double there) {
  return std::max(here / there, there / here) <= kPublishedNear;
}

Finding FindingOf(const PublishedSpeed& published, const ProfiledModel& model,
                  const FourWays& outcome) {
  Finding finding;
  finding.claim = absl::StrFormat("%s, cluster %s: %s on %d workers at %g Gb/s", published.source,
                                  published.cluster, model.name, published.workers,
                                  published.gigabits_per_second);
  if (published.samples.has_value()) {
    absl::StrAppend(&finding.claim, ", ", *published.samples, " samples");
  }
  absl::StrAppend(&finding.claim, ": ", published.plan, published.plan[0] == '\0' ? "" : ", ");
  const bool has_plan = published.plan[0] != '\0';
  finding.agrees = (!has_plan || outcome.plan == published.plan) &&
                   IsNear(outcome.OverDataParallel(), published.pipedream_over_data_parallel);
  absl::StrAppendFormat(&finding.claim, "%.2f times data parallelism",
                        published.pipedream_over_data_parallel);
  if (published.data_parallel_over_one.has_value()) {
    absl::StrAppendFormat(&finding.claim, " (of one worker %.2f and %.2f)",
                          *published.pipedream_over_one, *published.data_parallel_over_one);
    finding.agrees =
        finding.agrees &&
        IsNear(outcome.OverOne(outcome.data_parallel), *published.data_parallel_over_one) &&
        IsNear(outcome.OverOne(outcome.pipedream), *published.pipedream_over_one);
  }
  if (published.bytes_saved.has_value()) {
    absl::StrAppendFormat(&finding.claim, ", %.0f %% fewer bytes", *published.bytes_saved * 100);
    finding.agrees = finding.agrees && IsNear(1 - outcome.BytesSaved(), 1 - *published.bytes_saved);
  }
  finding.evidence =
      absl::StrFormat("%s, %.2f times (of one worker %.2f and %.2f), %.0f %% fewer bytes",
                      outcome.plan, outcome.OverDataParallel(), outcome.OverOne(outcome.pipedream),
                      outcome.OverOne(outcome.data_parallel), outcome.BytesSaved() * 100);
  return finding;
}

StudyTable TableOf(const PipeDreamStudy& study, const std::vector<Setting>& settings,
                   const std::vector<FourWays>& outcomes) {
  StudyTable table = {.columns = {"model", "samples", "workers", "gigabits", "one_worker_ms",
                                  "plan", "data_parallel", "reduce_after", "straight_stages",
                                  "model_parallel", "gpipe", "pipedream", "over_data_parallel",
                                  "data_parallel_mb", "model_parallel_mb", "pipedream_mb",
                                  "saved_percent"}};
  for (size_t i = 0; i < settings.size(); ++i) {
    const Setting& setting = settings[i];
    const FourWays& outcome = outcomes[i];
    table.rows.push_back(
        {study.models[setting.model].name, int64_t{setting.samples}, int64_t{setting.workers},
         setting.gigabits_per_second, outcome.one_worker_s * 1e3, outcome.plan,
         outcome.OverOne(outcome.data_parallel), outcome.OverOne(outcome.reduce_after),
         outcome.straight_stages, outcome.OverOne(outcome.model_parallel),
         outcome.OverOne(outcome.gpipe), outcome.OverOne(outcome.pipedream),
         outcome.OverDataParallel(), outcome.data_parallel.bytes / kMegabyte,
         outcome.model_parallel.bytes / kMegabyte, outcome.pipedream.bytes / kMegabyte,
         outcome.BytesSaved() * 100});
  }
  return table;
}

// Speeds of the four ways over the number of workers.
StudyChart ChartOf(const PipeDreamStudy& study, size_t model, const std::vector<Setting>& settings,
                   const std::vector<FourWays>& outcomes) {
  const ProfiledModel& profiled = study.models[model];
  StudyChart chart = {.name = profiled.profile};
  chart.chart = {.title = profiled.name,
                 .subtitle = absl::StrFormat("minibatches of %d, %g Gb/s", profiled.samples,
                                             study.chart_gigabits),
                 .x_label = "workers",
                 .y_label = "times as fast as one worker",
                 .x_log = true};
  const std::pair<const char*, MinibatchCost FourWays::*> ways[] = {
      {"data parallelism", &FourWays::data_parallel},
      {"model parallelism", &FourWays::model_parallel},
      {"GPipe", &FourWays::gpipe},
      {"PipeDream", &FourWays::pipedream}};
  for (const auto& [label, way] : ways) {
    ChartLine line = {.label = label, .marked = true};
    for (size_t i = 0; i < settings.size(); ++i) {
      const Setting& setting = settings[i];
      if (setting.model != model || setting.samples != profiled.samples ||
          setting.gigabits_per_second != study.chart_gigabits) {
        continue;
      }
      const double speed = outcomes[i].OverOne(outcomes[i].*way);
      line.points.push_back({static_cast<double>(setting.workers), speed, speed, speed});
    }
    chart.chart.lines.push_back(std::move(line));
  }
  return chart;
}

}  // namespace

absl::StatusOr<std::vector<ProfiledModel>> ReadPipeDreamModels(Files& files,
                                                               const std::string& directory) {
  // The profiles do not hold the samples; they follow from the sizes of their tensors.
  std::vector<ProfiledModel> models = {
      {.name = "VGG-16", .profile = "vgg16", .samples = 128},
      {.name = "ResNet-50", .profile = "resnet50", .samples = 128},
      {.name = "AlexNet", .profile = "alexnet", .samples = 256},
      {.name = "GNMT-8", .profile = "gnmt", .samples = 32},
      {.name = "GNMT-16", .profile = "gnmt_large", .samples = 64, .in_grid = false}};
  for (ProfiledModel& model : models) {
    const std::string path = JoinPath(directory, absl::StrCat(model.profile, ".txt"));
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, files.Read(path, kPipeDreamProfileBytesMax));
    absl::StatusOr<PipeDreamProfile> profile = ParsePipeDreamProfile(text);
    if (!profile.ok()) return Annotate(profile.status(), path);
    model.graph = WithoutInputsAndUnreadItems(*profile).graph;
  }
  return models;
}

absl::StatusOr<StudyResult> RunPipeDreamStudy(const PipeDreamStudy& study, StudyContext& context) {
  const std::vector<Setting> settings = SettingsOf(study);
  const auto count = static_cast<int64_t>(settings.size());
  std::vector<absl::StatusOr<FourWays>> simulated(settings.size(), FourWays());
  context.Announce("models, workers and links", count);
  PENSTOCK_RETURN_IF_ERROR(context.ForEach(count, [&](int64_t i) {
    const ProfiledModel& model = study.models[settings[i].model];
    const double factor = static_cast<double>(settings[i].samples) / model.samples;
    simulated[i] = TrainInFourWays(WithMinibatch(model.graph, factor), settings[i]);
  }));
  std::vector<FourWays> outcomes;
  std::map<Setting, size_t> index;
  for (size_t i = 0; i < settings.size(); ++i) {
    if (!simulated[i].ok()) {
      return Annotate(simulated[i].status(), study.models[settings[i].model].profile);
    }
    index[settings[i]] = i;
    outcomes.push_back(*std::move(simulated[i]));
  }
  StudyResult result = {
      .title = "PipeDream's experiment in simulated time: speeds as multiples of one worker's",
      .settings = {{"gpipe_minibatches_per_stage", kGpipeMinibatchesPerStage},
                   {"claims_within_a_factor_of", kPublishedNear}},
      .table = TableOf(study, settings, outcomes)};
  for (size_t model = 0; model < study.models.size(); ++model) {
    if (!study.models[model].in_grid) continue;
    result.charts.push_back(ChartOf(study, model, settings, outcomes));
  }
  for (const PublishedSpeed& published : PublishedSpeeds()) {
    const std::optional<Setting> setting = SettingOf(published, study);
    if (!setting.has_value()) continue;
    result.findings.push_back(
        FindingOf(published, study.models[setting->model], outcomes[index.at(*setting)]));
  }
  return result;
}

}  // namespace penstock
