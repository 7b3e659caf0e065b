#include "worker/version_rule.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace penstock {

// Defines a kind of weights, for the continuous methods.
struct VersionRule::Definition {
  absl::string_view weights;
  // The version that the forward of microbatch k reads on a stage with `depth`.
  int64_t (*forward)(const Setting& setting, int64_t k, int64_t depth);
  // The one that its backward reads; null: the same.
  int64_t (*backward)(const Setting& setting, int64_t k, int64_t depth) = nullptr;
  // The version that both passes are moved to; null: they are not.
  int64_t (*aim)(const Setting& setting, int64_t k, int64_t depth) = nullptr;
};

namespace {

using Setting = VersionRule::Setting;

// Returns the version after the updates of the microbatches that are not in flight.
int64_t Newest(const Setting& setting, int64_t k, int64_t depth) {
  return std::max<int64_t>(0, k - depth) / setting.interval;
}

// When the backward comes all microbatches before its own have had theirs.
int64_t NewestInBackward(const Setting& setting, int64_t k, int64_t) {
  return k / setting.interval;
}

int64_t FirstDepth(const Setting& setting) {
  return setting.first_depth.value_or(setting.stages - 1);
}

// Replicas do as many microbatches at the same time, one each. Returns the first of those that k is done with.
int64_t FirstOfRound(const Setting& setting, int64_t k) {
  return k / setting.replicas * setting.replicas;
}

// Returns the newest version that has no microbatch which the version lacks that the first stage reads for the first
// of k's round.
int64_t NewestOfFirst(const Setting& setting, int64_t k, int64_t) {
  const int64_t begun = FirstOfRound(setting, k) / setting.first_replicas * setting.first_replicas;
  return std::max<int64_t>(0, begun - FirstDepth(setting)) / setting.interval;
}

int64_t Drawn(const Setting& setting, int64_t k, int64_t depth) {
  const auto stage = static_cast<int32_t>(setting.stages - 1 - depth);
  return k - setting.draws.DelayOf(setting.first + k, stage, k);
}

constexpr VersionRule::Definition kDefinitions[] = {
    {.weights = "single", .forward = Newest, .backward = NewestInBackward},
    // PipeDream, SOSP 2019.
    {.weights = "stash", .forward = Newest},
    // PipeDream-2BW, arXiv 2006.09503: v = max(floor((k - 1) / m) - 1, 0), k from 1.
    {.weights = "double-buffer",
     .forward = [](const Setting& setting, int64_t k,
                   int64_t) { return std::max<int64_t>(0, k / setting.interval - 1); }},
    // PipeDream, SOSP 2019: the first stage's version travels with the microbatch.
    {.weights = "vertical-sync", .forward = NewestOfFirst},
    // XPipe, arXiv 1911.04610: the version that the microbatch's own update replaces.
    {.weights = "predicted",
     .forward = Newest,
     .backward = NewestInBackward,
     .aim = [](const Setting& setting, int64_t k, int64_t) { return k / setting.interval; }},
    // SpecTrain, arXiv 1809.02839: the current version when the first stage makes its update. Half of the microbatches
    // that are on their way between the two stages are on the way back, and come to this stage meanwhile.
    {.weights = "spectrain",
     .forward = Newest,
     .backward = NewestInBackward,
     .aim =
         [](const Setting& setting, int64_t k, int64_t depth) {
           const int64_t meanwhile = (FirstDepth(setting) - depth) / 2;
           return (FirstOfRound(setting, k) + meanwhile) / setting.interval;
         }},
    // PipeMare, arXiv 1910.05124, T2: what the forward read.
    {.weights = "corrected", .forward = Newest, .backward = NewestInBackward, .aim = Newest},
    // Randomized pipeline descent, arXiv 2606.03498.
    {.weights = "drawn", .forward = Drawn},
};

}  // namespace

VersionRule::VersionRule(const Setting& setting)
    : setting_(setting),
      definition_(
          std::find_if(std::begin(kDefinitions), std::end(kDefinitions),
                       [&](const Definition& each) { return each.weights == setting.weights; })) {
  PENSTOCK_CHECK(definition_ != std::end(kDefinitions));
}

int64_t VersionRule::Forward(int64_t k, int64_t depth) const {
  if (setting_.replay != nullptr && definition_->forward == Newest) {
    return setting_.replay->UpdatesBeforeForward(StageOf(depth), setting_.first + k);
  }
  return definition_->forward(setting_, k, depth);
}

int64_t VersionRule::Backward(int64_t k, int64_t depth) const {
  return RereadsWeights() ? definition_->backward(setting_, k, depth) : Forward(k, depth);
}

int64_t VersionRule::ForwardAhead(int64_t k, int64_t depth) const {
  if (definition_->aim == nullptr) return 0;
  return definition_->aim(setting_, k, depth) - Forward(k, depth);
}

int64_t VersionRule::BackwardAhead(int64_t k, int64_t depth) const {
  if (definition_->aim == nullptr) return 0;
  return definition_->aim(setting_, k, depth) - Backward(k, depth);
}

bool VersionRule::RereadsWeights() const { return definition_->backward != nullptr; }

int64_t VersionRule::OldestFrom(int64_t k, int64_t depth) const {
  if (definition_->forward == Drawn) return k - setting_.draws.DelayMax(k);
  if (setting_.replay != nullptr && definition_->forward == Newest) {
    return setting_.replay->FewestFrom(StageOf(depth), setting_.first + k);
  }
  return Forward(k, depth);
}

bool VersionRule::Moves(int64_t k, int64_t depth) const {
  return definition_->forward != Drawn ||
         setting_.draws.StageOf(setting_.first + k) == StageOf(depth);
}

StageLateness VersionRule::Lateness(int64_t depth) const {
  if (definition_->forward == Drawn) return {.staleness = setting_.draws.delta()};
  // Over one update, or those after which updates of other sizes begin together again, once the pipeline is full, in
  // the static order.
  StageLateness lateness;
  const int64_t cycle = std::lcm(setting_.interval, setting_.first_replicas);
  const int64_t full = (FirstDepth(setting_) + depth + setting_.stages) * cycle;
  for (int64_t k = full; k < full + cycle; ++k) {
    const int64_t read = definition_->forward(setting_, k, depth);
    const int64_t read_again = RereadsWeights() ? definition_->backward(setting_, k, depth) : read;
    lateness.staleness = std::max(lateness.staleness, k / setting_.interval - read);
    lateness.drift = std::max(lateness.drift, read_again - read);
  }
  lateness.rate_delay = static_cast<double>(lateness.staleness);
  if (definition_->forward == Newest && !setting_.updates_each_microbatch) {
    // PipeMare's count for stage i of P, from 1, with N microbatches in an update: (2 (P - i) + 1) / N.
    lateness.rate_delay =
        (2.0 * static_cast<double>(depth) + 1.0) / static_cast<double>(setting_.interval);
  }
  return lateness;
}

int64_t VersionRule::FixedAge() const {
  return definition_->forward == Newest ? 0 : Lateness(FirstDepth(setting_)).staleness;
}

int64_t VersionRule::VersionsMax(int64_t depth) const {
  if (setting_.replay != nullptr && definition_->forward == Newest) {
    return setting_.replay->LateMax(StageOf(depth)) + 1;
  }
  return Lateness(depth).staleness + 1;
}

// Let a replica of a place with r of them take the time r T for a microbatch, so that every place passes one on in
// each T. All replicas of a place begin a round together, n r T after the place's first: each does a forward and then, once
// gradients have come, a backward. So microbatch m has its forward in round m / r of a place, and its backward
// as many rounds later as the place has microbatches in flight, divided by r.
std::vector<int64_t> MicrobatchesInFlight(absl::Span<const int32_t> replicas) {
  std::vector<int64_t> in_flight(replicas.size());
  for (size_t place = replicas.size() - 1; place > 0; --place) {
    const int64_t here = replicas[place - 1];
    const int64_t next = replicas[place];
    // The most and the least time, in T, by which the round of a microbatch begins later here than on the next place,
    // if the first rounds of both begin at once.
    int64_t most = 0;
    int64_t least = 0;
    for (int64_t m = 0; m < std::lcm(here, next); ++m) {
      const int64_t later = m / here * here - m / next * next;
      most = std::max(most, later);
      least = std::min(least, later);
    }
    // The next place begins `most` later, or a forward would not find its input. Its backward of a microbatch ends its own
    // microbatches in flight and a round after that; so long the backward here must wait.
    const int64_t enough = most + in_flight[place] + next - least;
    in_flight[place - 1] = (enough + here - 1) / here * here;
  }
  return in_flight;
}

}  // namespace penstock
