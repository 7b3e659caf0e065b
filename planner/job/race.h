// Race: which of several ways to train a job is ahead, in the time that its workers would take.
//
// How many more steps staleness costs, or how many fewer smaller updates take, depends on model, data, rate and how
// far training has come, and no bound says it well enough to choose by. So the ways are tried: all train the job
// itself from its beginning for as long as a first round lasts on their workers (each as many steps as its simulated step
// time allows), the better half goes on for twice as long, and so on, until one is left: successive halving
// (Jamieson and Talwalkar, AISTATS 2016, arXiv 1502.07943). With a loss to reach, a racer that has it is ranked by the
// time it took, and the race ends when nobody else can be earlier.
//
// Losses of training are compared, each the mean over the last eighth of the steps (loss_curve.h), so that noise of
// single steps does not decide.
//
// Pure functions, but for what racers do.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/job/loss_curve.h"
#include "planner/job/plan_job.h"

namespace penstock {

// Trains one way, further each time it is asked.
struct Racer {
  double step_s = 0;  // on its workers
  // The losses of all steps from the first up to `steps`; fewer if the job is done before.
  // Errors: what stops this one, such as a loss that is not finite; it then leaves the race.
  std::function<absl::StatusOr<std::vector<double>>(int64_t steps)> train_to;
  // It will not be asked again, and may let go of what it holds.
  std::function<void()> leave = [] {};
};

struct RaceOptions {
  double first_s = 0;    // that the first round lasts, in the time of the workers
  double longest_s = 0;  // no round lasts longer
  std::optional<double> until_loss;
  // Returns whether no more time is to be spent; asked before and after a racer trains. An error of train_to then
  // counts for nothing.
  std::function<bool()> is_over = [] { return false; };
  // Called before a racer trains: which round, who, and how many are in it.
  std::function<void(int round, int racer, int racers)> progress = [](int, int, int) {};
};

struct RacerResult {
  int rounds = 0;  // that it took part in
  int64_t steps = 0;
  double loss = 0;                  // at the end of its last round
  double loss_error = 0;            // the standard error of this mean
  std::optional<double> reached_s;  // when it had `until_loss`
  std::string failed;               // empty: it did not
  LossCurve curve;
};

struct RaceResult {
  std::vector<RacerResult> racers;  // in the order given
  std::optional<int> winner;        // absent: all failed
  int rounds = 0;                   // that all who were in them have trained
  bool in_time = true;              // else it was over before it was decided
};

// A race between one training and the next: who trains next, how far, and what its losses lead to. For those who
// cannot wait while a racer trains.
class Race {
 public:
  struct Heat {
    int round = 0;
    int racer = 0;
    int at = 0;      // its place in the round
    int racers = 0;  // in the round
    int64_t steps = 0;
  };

  // `steps_s`: a step of each racer on its workers. REQUIRES: as RunRace; `options.is_over` and `options.progress` are
  // not called.
  Race(std::vector<double> steps_s, RaceOptions options);

  // Returns who trains next, from the beginning up to `steps`; absent: the race has ended.
  std::optional<Heat> Next();
  // Takes the losses of all steps of Next's racer, or the error that stopped it: it leaves the race.
  void OnTrained(const absl::StatusOr<std::vector<double>>& losses);
  // Ends the race early. The leader after the last whole round is then the winner; in the first round, the racer with
  // the shortest step.
  void End();
  // Returns whether this racer is in the round that Next is about, or was in the last one.
  bool IsIn(int racer) const;
  // Returns the results so far; they are complete once Next has nothing left.
  RaceResult Result() const;

 private:
  void EndRound();
  void SortByMerit();
  bool IsDecided() const;
  int Leader() const;

  const std::vector<double> steps_s_;
  const RaceOptions options_;
  std::vector<int> running_;  // in this round, by merit in the last
  std::vector<int> still_;    // of them, those that have trained in this round
  size_t at_ = 0;             // in running_: who trains next
  int round_ = 0;
  double seconds_ = 0;  // that this round lasts
  bool ended_ = false;
  RaceResult result_;
};

// REQUIRES: at least one racer; step times and first_s are positive; longest_s >= first_s.
RaceResult RunRace(const std::vector<Racer>& racers, const RaceOptions& options);

// Returns how long the rounds last where `fastest` has the shortest step of all that race: the first, 20 of its steps
// or three times its job's warm-up of the learning rate, during which smaller updates look better than they are; the
// longest, `steps_max` of its steps, or with 0 a quarter of its job. Everything else is as by default.
RaceOptions RoundsOf(const JudgedCandidate& fastest, int64_t steps_max = 0);

// Returns the candidates worth racing: of those that train alike the one with the shortest step. All methods that
// drain at every step train alike, those with replicas of the model apart; of each other method race the fastest
// candidate without and the fastest with replicas of stages, which update less often. Sampled delays, which are for
// theory, are left out unless `with_drawn`. Indices into plan.candidates, fastest step first.
std::vector<int> CandidatesToRace(const JobPlan& plan, bool with_drawn);

}  // namespace penstock
