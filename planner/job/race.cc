#include "planner/job/race.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/job/update_pattern.h"

namespace penstock {
namespace {

constexpr int64_t kFirstSteps = 20;
constexpr int64_t kFirstWarmUps = 3;
constexpr int64_t kShareOfJob = 4;
constexpr int64_t kStepsMin = 4;  // of a heat

std::vector<double> StepTimesOf(const std::vector<Racer>& racers) {
  std::vector<double> steps_s;
  steps_s.reserve(racers.size());
  for (const Racer& racer : racers) steps_s.push_back(racer.step_s);
  return steps_s;
}

}  // namespace

Race::Race(std::vector<double> steps_s, RaceOptions options)
    : steps_s_(std::move(steps_s)), options_(std::move(options)), seconds_(options_.first_s) {
  result_.racers.resize(steps_s_.size());
  running_.resize(steps_s_.size());
  std::iota(running_.begin(), running_.end(), 0);
}

std::optional<Race::Heat> Race::Next() {
  while (!ended_) {
    if (at_ == running_.size()) {
      EndRound();
      continue;
    }
    const int racer = running_[at_];
    if (result_.racers[racer].reached_s.has_value()) {  // it keeps the time it took
      still_.push_back(racer);
      ++at_;
      continue;
    }
    return Heat{.round = round_,
                .racer = racer,
                .at = static_cast<int>(at_),
                .racers = static_cast<int>(running_.size()),
                .steps = std::max(kStepsMin, static_cast<int64_t>(seconds_ / steps_s_[racer]))};
  }
  return std::nullopt;
}

void Race::OnTrained(const absl::StatusOr<std::vector<double>>& losses) {
  const int racer = running_[at_++];
  RacerResult& result = result_.racers[racer];
  if (!losses.ok() || losses->empty()) {
    result.failed = losses.ok() ? "it trained no step" : std::string(losses.status().message());
    return;
  }
  ++result.rounds;
  result.steps = static_cast<int64_t>(losses->size());
  result.curve = CurveOf(*losses);
  result.loss = SmoothLoss(*losses, result.steps);
  result.loss_error = ErrorOfSmoothLoss(*losses, result.steps);
  if (options_.until_loss.has_value()) {
    if (const auto reached = StepsTo(*options_.until_loss, *losses); reached.has_value()) {
      result.reached_s = static_cast<double>(*reached) * steps_s_[racer];
    }
  }
  still_.push_back(racer);
}

void Race::EndRound() {
  running_ = std::exchange(still_, {});
  at_ = 0;
  result_.rounds = ++round_;
  if (running_.empty()) {
    ended_ = true;
    return;
  }
  SortByMerit();
  ended_ = IsDecided();
  if (!ended_) {
    running_.resize((running_.size() + 1) / 2);
    ended_ = seconds_ >= options_.longest_s;
    seconds_ = std::min(2 * seconds_, options_.longest_s);
  }
  if (ended_) result_.winner = running_.front();
}

void Race::End() {
  if (ended_) return;
  ended_ = true;
  result_.in_time = false;
  result_.winner = Leader();
}

bool Race::IsIn(int racer) const {
  return std::find(running_.begin(), running_.end(), racer) != running_.end();
}

RaceResult Race::Result() const { return result_; }

// The leader after the last whole round; those that failed in this one are out.
int Race::Leader() const {
  const auto leads = std::find_if(running_.begin(), running_.end(),
                                  [&](int racer) { return result_.racers[racer].failed.empty(); });
  return leads == running_.end() ? running_.front() : *leads;
}

// Puts those that have the loss first, by the time it took them, then the others by their losses.
void Race::SortByMerit() {
  std::stable_sort(running_.begin(), running_.end(), [&](int a, int b) {
    const RacerResult& one = result_.racers[a];
    const RacerResult& two = result_.racers[b];
    if (one.reached_s.has_value() != two.reached_s.has_value()) return one.reached_s.has_value();
    if (one.reached_s.has_value()) return *one.reached_s < *two.reached_s;
    return one.loss < two.loss;
  });
}

// Returns whether the first cannot be overtaken: it has the loss, and the others have had as much time; or it is alone
// and there is no loss to reach.
bool Race::IsDecided() const {
  const RacerResult& first = result_.racers[running_.front()];
  if (options_.until_loss.has_value()) {
    return first.reached_s.has_value() && *first.reached_s <= seconds_;
  }
  return running_.size() == 1;
}

RaceResult RunRace(const std::vector<Racer>& racers, const RaceOptions& options) {
  Race race(StepTimesOf(racers), options);
  std::vector<bool> left(racers.size(), false);
  for (std::optional<Race::Heat> heat = race.Next(); heat.has_value(); heat = race.Next()) {
    options.progress(heat->round, heat->at, heat->racers);
    if (options.is_over()) {
      race.End();
      break;
    }
    const absl::StatusOr<std::vector<double>> losses = racers[heat->racer].train_to(heat->steps);
    if (!losses.ok() && options.is_over()) {
      race.End();
      break;
    }
    race.OnTrained(losses);
    race.Next();  // ends the round if it was the last of it
    for (size_t racer = 0; racer < racers.size(); ++racer) {
      if (left[racer] || race.IsIn(static_cast<int>(racer))) continue;
      left[racer] = true;
      racers[racer].leave();
    }
  }
  return race.Result();
}

RaceOptions RoundsOf(const JudgedCandidate& fastest, int64_t steps_max) {
  const v1::TrainingSpec& training = fastest.spec.training();
  const int64_t longest =
      steps_max > 0 ? steps_max : std::max<int64_t>(1, training.steps() / kShareOfJob);
  const int64_t warm = kFirstWarmUps * training.learning_rate().warmup_steps();
  const int64_t first = std::min(longest, std::max(kFirstSteps, warm));
  return {.first_s = static_cast<double>(first) * fastest.step_s,
          .longest_s = static_cast<double>(longest) * fastest.step_s};
}

std::vector<int> CandidatesToRace(const JobPlan& plan, bool with_drawn) {
  std::vector<int> chosen;
  std::set<std::string> kinds;
  for (size_t at = 0; at < plan.candidates.size(); ++at) {
    const JudgedCandidate& judged = plan.candidates[at];
    if (!judged.runs()) continue;
    const absl::StatusOr<const Method*> method =
        FindMethod(absl::string_view(judged.candidate.method));
    if (!method.ok() || ((*method)->weights->draws && !with_drawn)) continue;
    const bool is_plain = TrainsSynchronously(**method);
    const char* const form = judged.candidate.replicas.empty() ? "" : " with replicas";
    if (kinds.insert(is_plain ? "" : absl::StrCat(judged.candidate.method, form)).second) {
      chosen.push_back(static_cast<int>(at));
    }
  }
  return chosen;
}

}  // namespace penstock
