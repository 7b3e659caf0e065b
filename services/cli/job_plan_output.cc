#include "services/cli/job_plan_output.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/graph/render_plan.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

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

// Which stages recompute or offload.
std::string SavingText(const Candidate& candidate) {
  const std::string recompute = candidate.recompute.none() ? "" : TextOf(candidate.recompute);
  if (candidate.offload.none()) return recompute;
  return absl::StrCat(recompute, recompute.empty() ? "" : ", ", "offloads ",
                      TextOf(candidate.offload));
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
                  absl::StrCat(judged->candidate.microbatches), SavingText(judged->candidate),
                  FormatFixed(judged->step_s * 1e3, 3),
                  absl::StrFormat("%.1f %%", judged->bubble_ratio * 100),
                  FormatBytes(judged->most_memory()), absl::StrCat(judged->most_staleness()),
                  DelayText(*judged), absl::StrJoin(LayerCounts(*judged), " ")});
  }
  return absl::StrCat(table.Render(), rejected.empty() ? "" : "\ncannot run:\n", rejected);
}

// Says how far the fastest and the smallest may be from the best there are.
std::string ProofText(const JobPlan& plan) {
  const double gap = plan.candidates[*plan.fastest].step_s / plan.step_bound_s - 1;
  const std::string fastest =
      plan.is_fastest ? "no split of the layers and no order of the workers has a shorter step"
      : plan.step_bound_s > 0
          ? absl::StrFormat("no candidate could be more than %.1f %% faster, however split",
                            gap * 100)
          : "";
  if (fastest.empty()) return "";
  return absl::StrCat(fastest, plan.is_smallest ? ", and none needs less memory\n" : "\n");
}

// Says what sets the time of the chosen candidate's step, and what would help.
std::string ReasonsText(const PlannedJob& planned) {
  const JudgedCandidate& chosen = *planned.chosen();
  const StepReasons& reasons = *planned.reasons;
  const Cluster& cluster = planned.cluster;
  const auto ms = [](double seconds) { return absl::StrCat(FormatFixed(seconds * 1e3, 3), " ms"); };
  std::string text = absl::StrCat("\nwhat binds ", NameOf(chosen.candidate), ", ",
                                  ms(chosen.step_s), " a step:\n");
  absl::StrAppend(
      &text, "  ", ms(reasons.spread_s), " of work for every worker, were it spread by speed\n  ",
      ms(reasons.busiest_s - reasons.spread_s), " more on ",
      cluster.workers[chosen.workers[reasons.busiest]].name, ", for layers are cut whole\n  ",
      ms(std::max(0.0, reasons.without_network_s - reasons.busiest_s)),
      " in which it waits for other stages by the order of the method\n  ",
      ms(std::max(0.0, chosen.step_s - reasons.without_network_s)),
      " in which it waits for the network\n");
  if (const std::optional<int> other = FasterButForMemory(planned.plan); other.has_value()) {
    const JudgedCandidate& faster = planned.plan.candidates[*other];
    absl::StrAppend(&text, "memory: ", NameOf(faster.candidate), " would take ", ms(faster.step_s),
                    ", but ", faster.rejected, "\n");
  }
  return text;
}

std::string Bar(double share) {
  constexpr double kColumns = 24;
  const auto marks = static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * kColumns));
  return absl::StrCat(std::string(marks, '#'),
                      std::string(static_cast<size_t>(kColumns) - marks, '.'));
}

// The workers of the chosen candidate, and its stages.
std::string PictureText(const PlannedJob& planned) {
  const JudgedCandidate& chosen = *planned.chosen();
  const StagePlan& stages = planned.picture->plan;
  const auto most = static_cast<double>(chosen.most_memory());
  Table table(
      {{"WORKER"}, {"STAGES"}, {"COMPUTES"}, {""}, {"MEMORY", Table::Align::kRight}, {""}, {"OF"}});
  for (size_t worker = 0; worker < chosen.workers.size(); ++worker) {
    const PlanWorker& on = planned.cluster.workers[chosen.workers[worker]];
    std::vector<size_t> held;
    for (size_t stage = 0; stage < stages.stages.size(); ++stage) {
      const std::vector<int>& placed_on = stages.stages[stage].placed_on;
      if (std::count(placed_on.begin(), placed_on.end(), chosen.workers[worker]) > 0)
        held.push_back(stage);
    }
    const double busy = chosen.busy_s[worker] / chosen.step_s;
    const auto memory = static_cast<double>(chosen.memory[worker].total());
    const bool is_limited = std::isfinite(on.memory_bytes);
    table.AddRow({on.name, absl::StrJoin(held, " "), Bar(busy),
                  absl::StrFormat("%.0f %%", busy * 100),
                  FormatBytes(chosen.memory[worker].total()),
                  Bar(memory / (is_limited ? on.memory_bytes : most)),
                  is_limited ? FormatBytes(static_cast<int64_t>(on.memory_bytes)) : ""});
  }
  return absl::StrCat("\n", NameOf(chosen.candidate), ", by worker, and a microbatch by stage:\n",
                      table.Render(), "\n", RenderPlanText(planned.picture->graph, stages));
}

// The order of the layers, where it is not the model's.
std::string LayerOrderText(const JudgedCandidate& judged) {
  const std::vector<std::string>& order = judged.candidate.layer_order;
  if (order.empty()) return "";
  return absl::StrCat("layers: in the order ", absl::StrJoin(order, ", "), "\n");
}

// The fastest and the smallest.
std::string ExplainJob(const JobPlan& plan, const Cluster& cluster) {
  if (!plan.fastest.has_value()) return NothingRunsText(plan) + "\n";
  const JudgedCandidate& fastest = plan.candidates[*plan.fastest];
  const JudgedCandidate& smallest = plan.candidates[*plan.smallest];
  std::vector<std::string> names;
  for (const int worker : fastest.workers) names.push_back(cluster.workers[worker].name);
  return absl::StrCat(
      "fastest: ", NameOf(fastest.candidate), ": ", FormatFixed(fastest.step_s * 1e3, 3),
      " ms a step, ", absl::StrFormat("%.1f %% idle", fastest.bubble_ratio * 100), ", on ",
      absl::StrJoin(names, " "), "\nleast memory: ", NameOf(smallest.candidate), ": ",
      FormatBytes(smallest.most_memory()), " on the worker that needs most, ",
      FormatFixed(smallest.step_s * 1e3, 3), " ms a step\n", LayerOrderText(fastest),
      ProofText(plan),
      plan.in_time ? "" : "the budget was spent before all was tried: allow more with --budget\n");
}

nlohmann::ordered_json CandidateJson(const JudgedCandidate& judged, const Cluster& cluster) {
  nlohmann::ordered_json json = {{"method", judged.candidate.method},
                                 {"stages", judged.candidate.stages},
                                 {"microbatches", judged.candidate.microbatches},
                                 {"recompute", TextOf(judged.candidate.recompute)},
                                 {"replicas", judged.candidate.replicas}};
  if (!judged.candidate.offload.none()) json["offload"] = TextOf(judged.candidate.offload);
  if (!judged.runs()) {
    json["rejected"] = judged.rejected;
    return json;
  }
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (size_t i = 0; i < judged.workers.size(); ++i) {
    const WorkerMemory& memory = judged.memory[i];
    workers.push_back({{"worker", cluster.workers[judged.workers[i]].name},
                       {"memory_bytes", memory.total()},
                       {"weights", memory.weights + memory.predicted_weights},
                       {"stashed_weights", memory.stashed_weights},
                       {"gradients", memory.gradients},
                       {"optimizer", memory.optimizer},
                       {"activations", memory.activations},
                       {"buffers", memory.buffers},
                       {"scratch", memory.scratch},
                       {"in_file", memory.in_file},
                       {"sent_bytes_per_step", judged.sent_bytes[i]}});
  }
  json["step_seconds"] = judged.step_s;
  json["bubble_ratio"] = judged.bubble_ratio;
  json["stage_layers"] = LayerCounts(judged);
  json["layer_order"] = judged.candidate.layer_order;
  json["staleness"] = judged.most_staleness();
  json["block_delay"] = nullptr;
  if (judged.block_delay.has_value()) {
    json["block_delay"] = {{"max", judged.block_delay->max}, {"mean", judged.block_delay->mean}};
  }
  json["workers"] = std::move(workers);
  return json;
}

nlohmann::ordered_json PlanJson(const JobPlan& plan, const Cluster& cluster) {
  nlohmann::ordered_json candidates = nlohmann::ordered_json::array();
  for (const JudgedCandidate& judged : plan.candidates) {
    candidates.push_back(CandidateJson(judged, cluster));
  }
  nlohmann::ordered_json json = {{"in_time", plan.in_time},
                                 {"fastest", nullptr},
                                 {"smallest", nullptr},
                                 {"is_fastest", plan.is_fastest},
                                 {"is_smallest", plan.is_smallest},
                                 {"step_bound_seconds", plan.step_bound_s}};
  if (plan.fastest.has_value()) json["fastest"] = *plan.fastest;
  if (plan.smallest.has_value()) json["smallest"] = *plan.smallest;
  json["candidates"] = std::move(candidates);
  return json;
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
                  result.failed.empty()
                      ? absl::StrCat(FormatLoss(result.loss), " ± ", FormatLoss(result.loss_error))
                      : "",
                  result.reached_s.has_value() ? FormatFixed(*result.reached_s, 3) : "",
                  race.winner() == race.candidates[i] ? "first" : result.failed});
  }
  return absl::StrCat("\nrace, by simulated time:\n", table.Render(),
                      race.result.in_time
                          ? ""
                          : "its time was over before it was decided: allow more with "
                            "--race-seconds\n");
}

nlohmann::ordered_json RaceJson(const JobRace& race) {
  nlohmann::ordered_json racers = nlohmann::ordered_json::array();
  for (size_t i = 0; i < race.candidates.size(); ++i) {
    const RacerResult& result = race.result.racers[i];
    nlohmann::ordered_json racer = {{"candidate", race.candidates[i]}, {"rounds", result.rounds},
                                    {"steps", result.steps},           {"loss", result.loss},
                                    {"loss_error", result.loss_error}, {"reached_seconds", nullptr},
                                    {"failed", result.failed}};
    if (result.reached_s.has_value()) racer["reached_seconds"] = *result.reached_s;
    racers.push_back(std::move(racer));
  }
  nlohmann::ordered_json json = {
      {"winner", nullptr}, {"in_time", race.result.in_time}, {"racers", std::move(racers)}};
  if (race.winner().has_value()) json["winner"] = *race.winner();
  return json;
}

}  // namespace

std::string JobPlanText(const PlannedJob& planned, bool shows_all) {
  return absl::StrCat(CandidatesText(planned.plan, shows_all), "\n",
                      ExplainJob(planned.plan, planned.cluster),
                      planned.race.has_value() ? RaceText(planned.plan, *planned.race) : "",
                      planned.picture.has_value() ? PictureText(planned) : "",
                      planned.reasons.has_value() ? ReasonsText(planned) : "");
}

std::string NothingRunsText(const JobPlan& plan) {
  std::string nothing = "no candidate can run on these workers";
  const std::optional<int> other = SmallestButForMemory(plan);
  if (!other.has_value()) return nothing;
  const JudgedCandidate& smallest = plan.candidates[*other];
  return absl::StrCat(nothing, "; ", NameOf(smallest.candidate), " would with ",
                      FormatBytes(smallest.most_memory()), " on the worker that needs most");
}

nlohmann::ordered_json JobPlanJson(const PlannedJob& planned) {
  nlohmann::ordered_json json = PlanJson(planned.plan, planned.cluster);
  if (planned.race.has_value()) json["race"] = RaceJson(*planned.race);
  if (planned.reasons.has_value()) {
    const int worker = planned.chosen()->workers[planned.reasons->busiest];
    json["reasons"] = {{"busiest", planned.cluster.workers[worker].name},
                       {"busiest_seconds", planned.reasons->busiest_s},
                       {"without_network_seconds", planned.reasons->without_network_s},
                       {"spread_seconds", planned.reasons->spread_s}};
  }
  return json;
}

}  // namespace penstock
