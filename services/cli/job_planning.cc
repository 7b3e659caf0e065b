#include "services/cli/job_planning.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "coordinator/job_planning.h"
#include "job/keys/check_fields.h"
#include "job/profile/cluster_profile.h"
#include "job/profile/model_profile.h"
#include "job/resolve.h"
#include "job/yaml/yaml_message.h"
#include "services/cli/command.h"
#include "services/cli/data_file.h"
#include "services/cli/job_plan_output.h"
#include "services/cli/profile_job.h"
#include "services/cli/reference_contestant.h"
#include "services/cli/work_display.h"
#include "worker/layer_profiler.h"

namespace penstock {
namespace {

constexpr double kRaceSecondsEver = 1e7;

std::function<absl::Status()> Unless(Interrupt& interrupt) {
  return [&interrupt] {
    return interrupt.Count() > 0 ? InterruptedError("interrupted; nothing was written")
                                 : absl::OkStatus();
  };
}

absl::StatusOr<JobPlan> PlanOnThisMachine(const PlanningInput& input, const PlanChoice& choice,
                                          Interrupt& interrupt, Console& console) {
  WorkDisplay display("candidate", console, RealClock());
  TimeBudget budget(RealClock(), absl::Seconds(choice.budget_s));
  return PlanJob(input,
                 {.methods = choice.methods,
                  .stages = choice.stages,
                  .progress = [&](int done, int all) { display.Draw(done, all, ""); },
                  .may_go_on = Unless(interrupt)},
                 budget);
}

// The candidates train on this machine, one after the other.
absl::StatusOr<JobRace> RunRaceOf(const JobPlan& plan, const PlanChoice& choice,
                                  Interrupt& interrupt, Console& console) {
  JobRace race = {.candidates = CandidatesToRace(plan, !choice.methods.empty())};
  if (race.candidates.empty()) {
    return FailedError(
        "only methods with drawn delays can run, which are for theory; --methods names them");
  }
  const int64_t over_ns =
      RealClock().MonotonicNs() +
      static_cast<int64_t>(std::min(choice.race->limit_s, kRaceSecondsEver) * 1e9);
  const auto is_over = [over_ns] { return RealClock().MonotonicNs() >= over_ns; };
  const std::function<absl::Status()> not_interrupted = Unless(interrupt);
  const std::function<absl::Status()> may_go_on = [&] {
    return is_over() ? absl::DeadlineExceededError("the time of the race is over")
                     : not_interrupted();
  };
  std::vector<std::unique_ptr<ReferenceContestant>> contestants;
  std::vector<Racer> racers;
  v1::DataSpec data;
  for (const int candidate : race.candidates) {
    const JudgedCandidate& judged = plan.candidates[candidate];
    v1::JobSpec spec = judged.spec;
    if (racers.empty()) {  // the text of all
      PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
      PENSTOCK_RETURN_IF_ERROR(CheckJobData(RealFiles(), choice.race->data_root, job, spec));
      data = spec.data();
    }
    *spec.mutable_data() = data;
    contestants.push_back(
        std::make_unique<ReferenceContestant>(std::move(spec), choice.race->data_root, may_go_on));
    racers.push_back({.step_s = judged.step_s, .contestant = contestants.back().get()});
  }
  const JudgedCandidate& fastest = plan.candidates[race.candidates.front()];
  WorkDisplay display("racer", console, RealClock());
  RaceOptions options = RoundsOf(fastest, choice.race->steps);
  options.until_loss = choice.race->until_loss;
  options.is_over = is_over;
  options.progress = [&](int round, int racer, int all) {
    display.Draw(racer, all, absl::StrCat("round ", round + 1));
  };
  race.result = RunRace(racers, options);
  PENSTOCK_RETURN_IF_ERROR(not_interrupted());
  return race;
}

}  // namespace

absl::StatusOr<MeasuredCluster> ReadMeasuredCluster(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path));
  if (absl::StartsWith(text, "devices:") || absl::StrContains(text, "\ndevices:")) {
    PENSTOCK_ASSIGN_OR_RETURN(const v1::ClusterProfile profile, ParseClusterProfile(text, path));
    return ClusterOfProfile(profile);
  }
  MeasuredCluster measured;
  PENSTOCK_ASSIGN_OR_RETURN(measured.profile, ParseModelProfile(text, path));
  return measured;
}

absl::StatusOr<MeasuredCluster> MeasureCluster(CoordinatorClient& client, const v1::JobSpec& spec,
                                               Interrupt& interrupt, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  v1::ProfileSpec asked;
  const std::vector<int64_t> samples = SizesAround(job);
  asked.mutable_samples()->Assign(samples.begin(), samples.end());
  asked.set_seconds(LayerProfilerOptions().seconds);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ClusterProfile profile,
                            ProfileCluster(client, spec, asked, interrupt, console, RealClock()));
  return ClusterOfProfile(profile);
}

const JudgedCandidate* PlannedJob::chosen() const {
  const std::optional<int> index = race.has_value() ? race->winner() : plan.fastest;
  return index.has_value() ? &plan.candidates[*index] : nullptr;
}

absl::StatusOr<PlannedJob> PlanForJob(PlanningInput input, const PlanChoice& choice,
                                      Interrupt& interrupt, Console& console) {
  PlannedJob planned;
  PENSTOCK_ASSIGN_OR_RETURN(planned.plan, PlanOnThisMachine(input, choice, interrupt, console));
  if (choice.race.has_value() && planned.plan.fastest.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(planned.race, RunRaceOf(planned.plan, choice, interrupt, console));
  }
  if (const JudgedCandidate* const chosen = planned.chosen(); chosen != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(planned.picture, PictureOf(input, *chosen));
    if (choice.explains) {
      PENSTOCK_ASSIGN_OR_RETURN(planned.reasons, ReasonsOf(input, *chosen));
    }
  }
  planned.cluster = std::move(input.cluster);
  return planned;
}

}  // namespace penstock
