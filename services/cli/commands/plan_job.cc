#include "services/cli/commands/plan_job.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status.h"
#include "job/model_profile.h"
#include "job/yaml_writer.h"
#include "services/cli/command.h"
#include "services/cli/drawings.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/cli/work_display.h"
#include "strategy/plan_job.h"

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
  app.add_option("--methods", options.methods,
                 "Of a job: the methods to try; default: all of the catalog")
      ->type_name("NAME[,NAME...]")
      ->delimiter(',')
      ->needs(job);
  app.add_flag("--all", options.shows_all, "Of a job: every candidate, not the best of each method")
      ->needs(job);
  app.add_option("-o,--output", options.output_path,
                 "Of a job: write the fastest as a job file that runs it")
      ->type_name("FILE")
      ->needs(job);
  app.add_option("--times", options.times_path,
                 "Of a job: write the times and links that the fastest was simulated on, for "
                 "--emulate")
      ->type_name("FILE")
      ->needs(job);
}

absl::Status RunJobPlan(const JobPlanOptions& options, const std::string& profile_path,
                        Cluster cluster, double budget_s, bool json, Console& console) {
  for (const std::string& path : {options.output_path, options.times_path}) {
    if (!path.empty()) PENSTOCK_RETURN_IF_ERROR(CheckCanWrite(path));
  }
  PENSTOCK_RETURN_IF_ERROR(LoadJob(options.job).status());
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJob(options.job));
  PENSTOCK_ASSIGN_OR_RETURN(v1::ModelProfile profile, ReadModelProfile(profile_path));
  const PlanningInput input = {.spec = std::move(document.spec),
                               .profile = std::move(profile),
                               .cluster = std::move(cluster)};
  absl::StatusOr<JobPlan> plan = absl::UnknownError("not planned");
  {
    WorkDisplay display("candidate", console, RealClock());
    TimeBudget budget(RealClock(), absl::Seconds(budget_s));
    plan = PlanJob(input,
                   {.methods = options.methods,
                    .progress = [&](int done, int all) { display.Draw(done, all, ""); }},
                   budget);
  }
  if (!plan.ok()) return Annotate(plan.status(), options.job.path);
  if (json) {
    PrintJson(JobPlanJson(*plan, input.cluster), console);
  } else {
    console.out << CandidatesText(*plan, options.shows_all) << "\n"
                << ExplainJob(*plan, input.cluster);
  }
  if (!plan->fastest.has_value()) {
    return FailedError("no candidate can run on this cluster");
  }
  return WriteChosen(options, plan->candidates[*plan->fastest], console);
}

}  // namespace penstock
