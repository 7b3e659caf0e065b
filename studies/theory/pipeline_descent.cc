#include "studies/theory/pipeline_descent.h"

#include <algorithm>

namespace penstock {
namespace {

// The most microbatches between their first forward and their last backward.
int64_t InFlightMax(const TickSequence& sequence) {
  int64_t in_flight = 0;
  int64_t most = 0;
  for (const TickEvent& event : sequence.events) {
    if (event.stage != 0) continue;
    in_flight += event.is_backward ? -1 : 1;
    most = std::max(most, in_flight);
  }
  return most;
}

class PipelineDescentRun {
 public:
  PipelineDescentRun(const Problem& problem, const TickSequence& sequence,
                     const PipelineDescentOptions& options, const GradientNoise& noise,
                     const UpdateObserver& observer)
      : problem_(problem),
        sequence_(sequence),
        options_(options),
        noise_(noise),
        observer_(observer),
        partition_{sequence.stages, options.batch},
        replicas_(options.replicas, std::vector<double>(problem.width())),
        average_(problem.width()),
        in_flight_(InFlightMax(sequence)),
        gradient_(problem.width()),
        recorder_(options.plan) {
    for (Flight& flight : in_flight_) {
      flight.model.resize(problem.width());
      flight.outputs.resize(options.batch);
    }
  }

  DescentResult Run() {
    bool goes_on = Look(0);
    const std::vector<TickEvent>& events = sequence_.events;
    for (size_t i = 0; i < events.size() && goes_on && events[i].tick < options_.plan.ticks;) {
      const int64_t tick = events[i].tick;
      for (; i < events.size() && events[i].tick == tick; ++i) {
        events[i].is_backward ? Backward(events[i]) : Forward(events[i]);
      }
      if (recorder_.Wants(tick + 1)) goes_on = Look(tick + 1);
    }
    return {recorder_.Finish(), average_};
  }

 private:
  // A microbatch on its way.
  struct Flight {
    std::vector<double> model;    // [width], each block as its stage's forward read it
    std::vector<double> outputs;  // [batch], predictions, then their gradients
  };

  Flight& FlightOf(int64_t microbatch) { return in_flight_[microbatch % in_flight_.size()]; }
  std::vector<double>& ReplicaOf(int64_t microbatch) {
    return replicas_[microbatch % options_.replicas];
  }

  void Forward(const TickEvent& event) {
    Flight& flight = FlightOf(event.microbatch);
    if (event.stage == 0) std::fill(flight.outputs.begin(), flight.outputs.end(), 0.0);
    const int64_t begin = partition_.BlockBegin(event.stage, problem_.width());
    const int64_t end = partition_.BlockEnd(event.stage, problem_.width());
    const std::vector<double>& weights = ReplicaOf(event.microbatch);
    std::copy(weights.begin() + begin, weights.begin() + end, flight.model.begin() + begin);
    const int64_t minibatch = options_.first_minibatch + event.microbatch;
    BlockForward(problem_, partition_, event.stage, minibatch, weights.data() + begin,
                 absl::MakeSpan(flight.outputs));
    if (event.stage + 1 == sequence_.stages) {
      OutputGradients(problem_, partition_, minibatch, absl::MakeSpan(flight.outputs));
    }
  }

  void Backward(const TickEvent& event) {
    const Flight& flight = FlightOf(event.microbatch);
    const int64_t begin = partition_.BlockBegin(event.stage, problem_.width());
    const int64_t size = partition_.BlockEnd(event.stage, problem_.width()) - begin;
    const absl::Span<double> gradient(gradient_.data(), size);
    BlockGradient(problem_, partition_, event.stage, options_.first_minibatch + event.microbatch,
                  flight.outputs, flight.model.data() + begin, gradient);
    noise_.AddTo(gradient, noise_position_);
    std::vector<double>& weights = ReplicaOf(event.microbatch);
    if (observer_) observer_({updates_, weights, gradient});
    AddScaled(-options_.learning_rate, gradient.data(), size, weights.data() + begin);
    ++updates_;
    const bool round_done =
        options_.round > 0 && event.stage == 0 && (event.microbatch + 1) % options_.round == 0;
    if (round_done) {
      Average();
      for (std::vector<double>& replica : replicas_) replica = average_;
    }
  }

  void Average() {
    std::fill(average_.begin(), average_.end(), 0.0);
    for (const std::vector<double>& replica : replicas_) {
      AddScaled(1.0 / static_cast<double>(options_.replicas), replica.data(), problem_.width(),
                average_.data());
    }
  }

  bool Look(int64_t tick) {
    Average();
    return recorder_.Add({tick, updates_, problem_.Objective(average_) - problem_.optimum});
  }

  const Problem& problem_;
  const TickSequence& sequence_;
  const PipelineDescentOptions& options_;
  const GradientNoise& noise_;
  const UpdateObserver& observer_;
  const Partition partition_;
  std::vector<std::vector<double>> replicas_;  // [replicas][width]
  std::vector<double> average_;
  std::vector<Flight> in_flight_;
  std::vector<double> gradient_;
  int64_t noise_position_ = 0;
  int64_t updates_ = 0;
  CurveRecorder recorder_;
};

}  // namespace

DescentResult PipelineDescent(const Problem& problem, const TickSequence& sequence,
                              const PipelineDescentOptions& options, const GradientNoise& noise,
                              const UpdateObserver& observer) {
  return PipelineDescentRun(problem, sequence, options, noise, observer).Run();
}

}  // namespace penstock
