#include "studies/theory/random_descent.h"

#include <algorithm>

#include "base/random.h"

namespace penstock {
namespace {

// Numbers below a bound, four for each call of Philox, all named by (seed, k).
class Draws {
 public:
  Draws(uint64_t seed, int64_t k) : seed_(seed), k_(static_cast<uint64_t>(k)) {}

  // Uniform in [0, bound), to a bias below bound / 2^32.
  int64_t Below(int64_t bound) {
    if (next_ % 4 == 0) {
      constexpr uint32_t kPurpose = 0x525044;  // "RPD"
      words_ = Philox(
          seed_, {static_cast<uint32_t>(k_), static_cast<uint32_t>(k_ >> 32), next_ / 4, kPurpose});
    }
    return static_cast<int64_t>((words_[next_++ % 4] * static_cast<uint64_t>(bound)) >> 32);
  }

 private:
  const uint64_t seed_;
  const uint64_t k_;
  uint32_t next_ = 0;
  std::array<uint32_t, 4> words_{};
};

}  // namespace

BlockHistory::BlockHistory(const Partition& partition, int64_t width, int64_t delta)
    : delta_(delta),
      block_max_((width + partition.stages - 1) / partition.stages),
      weights_(width),
      writes_(partition.stages),
      replaced_(delta * block_max_) {
  for (int32_t stage = 0; stage <= partition.stages; ++stage) {
    begins_.push_back(partition.BlockBegin(stage, width));
  }
}

const double* BlockHistory::Read(int32_t stage, int64_t delay) const {
  // The first update since then has replaced the block as it was.
  const std::vector<int64_t>& writes = writes_[stage];
  const auto since = std::lower_bound(writes.begin(), writes.end(), updates_ - delay);
  if (since == writes.end()) return weights_.data() + begin(stage);
  return replaced_.data() + *since % delta_ * block_max_;
}

void BlockHistory::Update(int32_t stage, absl::Span<const double> scaled_gradient) {
  if (delta_ > 0) {
    std::copy_n(weights_.begin() + begin(stage), scaled_gradient.size(),
                replaced_.begin() + updates_ % delta_ * block_max_);
    std::vector<int64_t>& writes = writes_[stage];
    writes.push_back(updates_);
    // Half of them at once, so that an update costs the same on average.
    const auto kept = std::lower_bound(writes.begin(), writes.end(), updates_ + 1 - delta_);
    if (kept - writes.begin() > writes.end() - kept) writes.erase(writes.begin(), kept);
  }
  AddScaled(-1.0, scaled_gradient.data(), static_cast<int64_t>(scaled_gradient.size()),
            weights_.data() + begin(stage));
  ++updates_;
}

void DrawUpdate(const RandomDescentOptions& options, int64_t k, RandomDraw& draw) {
  Draws draws(options.seed, k);
  draw.delays.resize(options.partition.stages);
  const int64_t delay_max = std::min(options.delta, k);
  for (int64_t& delay : draw.delays) delay = draws.Below(delay_max + 1);
  draw.stage = static_cast<int32_t>(draws.Below(options.partition.stages));
  draw.minibatch = draws.Below(options.minibatches);
}

namespace {

class RandomDescentRun {
 public:
  RandomDescentRun(const Problem& problem, const RandomDescentOptions& options,
                   const GradientNoise& noise, const UpdateObserver& observer)
      : problem_(problem),
        options_(options),
        noise_(noise),
        observer_(observer),
        history_(options.partition, problem.width(), options.delta),
        recorder_(options.plan),
        model_(problem.width()),
        outputs_(options.partition.batch),
        gradient_(problem.width()) {}

  DescentResult Run() {
    bool goes_on = Look(0);
    for (int64_t tick = 1; tick <= options_.plan.ticks && goes_on; ++tick) {
      while (history_.updates() < options_.updates_by_tick[tick]) Update();
      if (recorder_.Wants(tick)) goes_on = Look(tick);
    }
    const absl::Span<const double> weights = history_.weights();
    return {recorder_.Finish(), std::vector<double>(weights.begin(), weights.end())};
  }

 private:
  void Update() {
    DrawUpdate(options_, history_.updates(), draw_);
    for (int32_t stage = 0; stage < options_.partition.stages; ++stage) {
      std::copy_n(history_.Read(stage, draw_.delays[stage]),
                  history_.begin(stage + 1) - history_.begin(stage),
                  model_.begin() + history_.begin(stage));
    }
    // The whole model is one block here.
    const Partition whole{.stages = 1, .batch = options_.partition.batch};
    std::fill(outputs_.begin(), outputs_.end(), 0.0);
    BlockForward(problem_, whole, 0, draw_.minibatch, model_.data(), absl::MakeSpan(outputs_));
    OutputGradients(problem_, whole, draw_.minibatch, absl::MakeSpan(outputs_));

    const int64_t begin = history_.begin(draw_.stage);
    const absl::Span<double> gradient(gradient_.data(), history_.begin(draw_.stage + 1) - begin);
    BlockGradient(problem_, options_.partition, draw_.stage, draw_.minibatch, outputs_,
                  model_.data() + begin, gradient);
    noise_.AddTo(gradient, noise_position_);
    if (observer_) observer_({history_.updates(), history_.weights(), gradient});
    for (double& value : gradient) value *= options_.learning_rate;
    history_.Update(draw_.stage, gradient);
  }

  bool Look(int64_t tick) {
    const double gap = problem_.Objective(history_.weights()) - problem_.optimum;
    return recorder_.Add({tick, history_.updates(), gap});
  }

  const Problem& problem_;
  const RandomDescentOptions& options_;
  const GradientNoise& noise_;
  const UpdateObserver& observer_;
  BlockHistory history_;
  CurveRecorder recorder_;
  RandomDraw draw_;
  std::vector<double> model_;    // [width], the model read
  std::vector<double> outputs_;  // [batch]
  std::vector<double> gradient_;
  int64_t noise_position_ = 0;
};

}  // namespace

DescentResult RandomDescent(const Problem& problem, const RandomDescentOptions& options,
                            const GradientNoise& noise, const UpdateObserver& observer) {
  return RandomDescentRun(problem, options, noise, observer).Run();
}

std::vector<int64_t> UpdatesByTick(const TickSequence& sequence) {
  std::vector<int64_t> updates(sequence.ticks + 1);
  for (const TickEvent& event : sequence.events) updates[event.tick + 1] += event.is_backward;
  for (size_t tick = 1; tick < updates.size(); ++tick) updates[tick] += updates[tick - 1];
  return updates;
}

}  // namespace penstock
