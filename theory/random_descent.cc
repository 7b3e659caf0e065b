#include "theory/random_descent.h"

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
    : partition_(partition),
      width_(width),
      delta_(delta),
      block_max_((width + partition.stages - 1) / partition.stages),
      weights_(width),
      writes_(partition.stages),
      replaced_(delta * block_max_) {}

const double* BlockHistory::Read(int32_t stage, int64_t delay) const {
  // What the block was is what its first update since then replaced.
  const std::vector<int64_t>& writes = writes_[stage];
  const auto since = std::lower_bound(writes.begin(), writes.end(), updates_ - delay);
  if (since == writes.end()) return weights_.data() + partition_.BlockBegin(stage, width_);
  return replaced_.data() + *since % delta_ * block_max_;
}

void BlockHistory::Update(int32_t stage, absl::Span<const double> scaled_gradient) {
  const int64_t begin = partition_.BlockBegin(stage, width_);
  if (delta_ > 0) {
    std::copy_n(weights_.begin() + begin, scaled_gradient.size(),
                replaced_.begin() + updates_ % delta_ * block_max_);
    std::vector<int64_t>& writes = writes_[stage];
    writes.push_back(updates_);
    // Half of them at once, so that an update costs the same on average.
    const auto kept = std::lower_bound(writes.begin(), writes.end(), updates_ + 1 - delta_);
    if (kept - writes.begin() > writes.end() - kept) writes.erase(writes.begin(), kept);
  }
  AddScaled(-1.0, scaled_gradient.data(), static_cast<int64_t>(scaled_gradient.size()),
            weights_.data() + begin);
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

DescentResult RandomDescent(const Problem& problem, const RandomDescentOptions& options,
                            const GradientNoise& noise, const UpdateObserver& observer) {
  const Partition& partition = options.partition;
  const int64_t width = problem.width();
  BlockHistory history(partition, width, options.delta);
  CurveRecorder recorder(options.plan);
  RandomDraw draw;
  std::vector<double> outputs(partition.batch);
  std::vector<double> gradient(width);
  int64_t noise_position = 0;
  const auto look = [&](int64_t tick) {
    const double gap = problem.Objective(history.weights()) - problem.optimum;
    return recorder.Add({tick, history.updates(), gap});
  };

  bool goes_on = look(0);
  for (int64_t tick = 1; tick <= options.plan.ticks && goes_on; ++tick) {
    while (history.updates() < options.updates_by_tick[tick]) {
      DrawUpdate(options, history.updates(), draw);
      std::fill(outputs.begin(), outputs.end(), 0.0);
      for (int32_t stage = 0; stage < partition.stages; ++stage) {
        BlockForward(problem, partition, stage, draw.minibatch,
                     history.Read(stage, draw.delays[stage]), absl::MakeSpan(outputs));
      }
      OutputGradients(problem, partition, draw.minibatch, absl::MakeSpan(outputs));
      const int64_t size =
          partition.BlockEnd(draw.stage, width) - partition.BlockBegin(draw.stage, width);
      const absl::Span<double> block_gradient(gradient.data(), size);
      BlockGradient(problem, partition, draw.stage, draw.minibatch, outputs,
                    history.Read(draw.stage, draw.delays[draw.stage]), block_gradient);
      noise.AddTo(block_gradient, noise_position);
      if (observer) observer({history.updates(), history.weights(), block_gradient});
      for (double& value : block_gradient) value *= options.learning_rate;
      history.Update(draw.stage, block_gradient);
    }
    if (recorder.Wants(tick)) goes_on = look(tick);
  }
  const absl::Span<const double> weights = history.weights();
  return {recorder.Finish(), std::vector<double>(weights.begin(), weights.end())};
}

std::vector<int64_t> UpdatesByTick(const TickSequence& sequence) {
  std::vector<int64_t> updates(sequence.ticks + 1);
  for (const TickEvent& event : sequence.events) updates[event.tick + 1] += event.is_backward;
  for (size_t tick = 1; tick < updates.size(); ++tick) updates[tick] += updates[tick - 1];
  return updates;
}

}  // namespace penstock
