#include "strategy/race.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

constexpr int64_t kLossesMin = 4;    // that are averaged
constexpr int64_t kLossesShare = 8;  // one of so many steps is

int64_t LossesAveraged(int64_t steps) {
  return std::min(steps, std::max(kLossesMin, steps / kLossesShare));
}

// After the first `steps` of `losses`.
double SmoothLoss(const std::vector<double>& losses, int64_t steps) {
  const int64_t averaged = LossesAveraged(steps);
  const auto end = losses.begin() + steps;
  return std::accumulate(end - averaged, end, 0.0) / static_cast<double>(averaged);
}

// The standard error of that mean, as if the losses of single steps were independent.
double ErrorOfSmoothLoss(const std::vector<double>& losses, int64_t steps) {
  const int64_t averaged = LossesAveraged(steps);
  if (averaged < 2) return 0;
  const double mean = SmoothLoss(losses, steps);
  double squares = 0;
  for (int64_t at = steps - averaged; at < steps; ++at) {
    squares += (losses[at] - mean) * (losses[at] - mean);
  }
  return std::sqrt(squares / static_cast<double>(averaged - 1) / static_cast<double>(averaged));
}

std::optional<int64_t> StepsTo(double loss, const std::vector<double>& losses) {
  for (int64_t steps = 1; steps <= static_cast<int64_t>(losses.size()); ++steps) {
    if (steps >= kLossesMin && SmoothLoss(losses, steps) <= loss) return steps;
  }
  return std::nullopt;
}

class RaceRunner {
 public:
  RaceRunner(const std::vector<Racer>& racers, const RaceOptions& options)
      : racers_(racers), options_(options) {
    result_.racers.resize(racers.size());
    running_.resize(racers.size());
    std::iota(running_.begin(), running_.end(), 0);
  }

  RaceResult Run() {
    double seconds = options_.first_s;
    for (int round = 0; !running_.empty(); ++round) {
      if (!RunRound(round, seconds)) {
        result_.in_time = false;
        break;
      }
      SortByMerit();
      if (IsDecided(seconds)) break;
      const size_t left = (running_.size() + 1) / 2;
      for (size_t at = left; at < running_.size(); ++at) {
        racers_[running_[at]].contestant->Leave();
      }
      running_.resize(left);
      if (seconds >= options_.longest_s) break;
      seconds = std::min(2 * seconds, options_.longest_s);
    }
    if (!running_.empty()) result_.winner = result_.in_time ? running_.front() : Leader();
    return std::move(result_);
  }

 private:
  // False if the time was over before all had trained; who is in the race is then as before.
  bool RunRound(int round, double seconds) {
    std::vector<int> still;
    for (size_t at = 0; at < running_.size(); ++at) {
      const int racer = running_[at];
      options_.progress(round, static_cast<int>(at), static_cast<int>(running_.size()));
      if (options_.is_over()) return false;
      if (Train(racer, seconds)) {
        still.push_back(racer);
      } else if (options_.is_over()) {
        result_.racers[racer].failed.clear();
        return false;
      }
    }
    running_ = std::move(still);
    return true;
  }

  // After the last whole round; those that failed in this one are out.
  int Leader() const {
    const auto leads = std::find_if(running_.begin(), running_.end(), [&](int racer) {
      return result_.racers[racer].failed.empty();
    });
    return leads == running_.end() ? running_.front() : *leads;
  }

  bool Train(int racer, double seconds) {
    RacerResult& result = result_.racers[racer];
    if (result.reached_s.has_value()) return true;
    const int64_t steps =
        std::max(kLossesMin, static_cast<int64_t>(seconds / racers_[racer].step_s));
    const absl::StatusOr<std::vector<double>> losses = racers_[racer].contestant->TrainTo(steps);
    if (!losses.ok() || losses->empty()) {
      result.failed = losses.ok() ? "it trained no step" : std::string(losses.status().message());
      return false;
    }
    ++result.rounds;
    result.steps = static_cast<int64_t>(losses->size());
    result.loss = SmoothLoss(*losses, result.steps);
    result.loss_error = ErrorOfSmoothLoss(*losses, result.steps);
    if (!options_.until_loss.has_value()) return true;
    if (const auto reached = StepsTo(*options_.until_loss, *losses); reached.has_value()) {
      result.reached_s = static_cast<double>(*reached) * racers_[racer].step_s;
    }
    return true;
  }

  // Those that have the loss by the time it took them, then the others by their losses.
  void SortByMerit() {
    std::stable_sort(running_.begin(), running_.end(), [&](int a, int b) {
      const RacerResult& one = result_.racers[a];
      const RacerResult& two = result_.racers[b];
      if (one.reached_s.has_value() != two.reached_s.has_value()) return one.reached_s.has_value();
      if (one.reached_s.has_value()) return *one.reached_s < *two.reached_s;
      return one.loss < two.loss;
    });
  }

  // Whether the first cannot be overtaken: it has the loss, and the others have had as much time; or it is
  // alone and there is no loss to reach.
  bool IsDecided(double seconds) const {
    if (running_.empty()) return true;
    const RacerResult& first = result_.racers[running_.front()];
    if (options_.until_loss.has_value()) {
      return first.reached_s.has_value() && *first.reached_s <= seconds;
    }
    return running_.size() == 1;
  }

  const std::vector<Racer>& racers_;
  const RaceOptions& options_;
  std::vector<int> running_;
  RaceResult result_;
};

}  // namespace

RaceResult RunRace(const std::vector<Racer>& racers, const RaceOptions& options) {
  return RaceRunner(racers, options).Run();
}

std::vector<int> CandidatesToRace(const JobPlan& plan, bool with_drawn) {
  std::vector<int> chosen;
  std::set<std::string> kinds;
  for (size_t at = 0; at < plan.candidates.size(); ++at) {
    const JudgedCandidate& judged = plan.candidates[at];
    if (!judged.runs()) continue;
    const absl::StatusOr<const Method*> method =
        FindMethod(absl::string_view(judged.candidate.method));
    if (!method.ok() || ((*method)->weights == Weights::kDrawn && !with_drawn)) continue;
    const bool is_plain = (*method)->synchronous && (*method)->placement != Placement::kReplicas;
    const char* const form = judged.candidate.replicas.empty() ? "" : " with replicas";
    if (kinds.insert(is_plain ? "" : absl::StrCat(judged.candidate.method, form)).second) {
      chosen.push_back(static_cast<int>(at));
    }
  }
  return chosen;
}

}  // namespace penstock
