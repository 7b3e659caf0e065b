// Both sides of theorem 4.1 along runs.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "schedule/block_draws.h"
#include "studies/theory/bound.h"
#include "studies/theory/pipeline_descent.h"
#include "studies/theory/random_descent.h"
#include "studies/theory/studies.h"
#include "studies/theory/tuned_report.h"

namespace penstock {
namespace {

constexpr int64_t kBoundBatch = 10;

// The parts of both sides of the inequality, after every update.
struct Trace {
  std::vector<double> squared_gradient_mean;  // 1/K sum ||grad f(w_k)||^2
  std::vector<double> block_gradient_max;     // G so far
};

class Tracer {
 public:
  explicit Tracer(const Problem& problem) : problem_(problem), gradient_(problem.width()) {}

  UpdateObserver observer() {
    return [this](const UpdateView& update) { Add(update); };
  }
  Trace& trace() { return trace_; }

 private:
  void Add(const UpdateView& update) {
    problem_.Gradient(update.weights, absl::MakeSpan(gradient_));
    sum_ += SquaredNorm(gradient_);
    block_gradient_ = std::max(block_gradient_, std::sqrt(SquaredNorm(update.gradient)));
    trace_.squared_gradient_mean.push_back(sum_ / static_cast<double>(update.k + 1));
    trace_.block_gradient_max.push_back(block_gradient_);
  }

  const Problem& problem_;
  std::vector<double> gradient_;
  double sum_ = 0.0;
  double block_gradient_ = 0.0;
  Trace trace_;
};

// A problem with what the theorem asks of it.
struct Instance {
  Problem problem;
  BoundInput input;  // delta apart
};

// The largest norm of a block's gradient at the start, over all minibatches: the stand-in for G that the
// step size is taken from before a run (the authors do the same).
double StartBlockGradient(const Problem& problem, const Partition& partition) {
  const std::vector<double> zero(problem.width());
  std::vector<double> gradient(problem.width());
  double largest = 0.0;
  for (int64_t minibatch = 0; minibatch < problem.rows() / partition.batch; ++minibatch) {
    std::vector<double> outputs(partition.batch);
    OutputGradients(problem, partition, minibatch, absl::MakeSpan(outputs));
    for (int32_t stage = 0; stage < partition.stages; ++stage) {
      const int64_t size =
          partition.BlockEnd(stage, problem.width()) - partition.BlockBegin(stage, problem.width());
      const absl::Span<double> block(gradient.data(), size);
      BlockGradient(problem, partition, stage, minibatch, outputs, zero.data(), block);
      largest = std::max(largest, std::sqrt(SquaredNorm(block)));
    }
  }
  return largest;
}

Instance MakeInstance(const BoundStudy& study, int64_t seed, int64_t updates) {
  Instance instance{.problem = RandomQuadratic(study.size, seed)};
  const Problem& problem = instance.problem;
  const std::vector<double> zero(problem.width());
  instance.input = {.stages = study.stages,
                    .smoothness = problem.Smoothness(),
                    .start_gap = problem.Objective(zero) - problem.optimum,
                    .block_gradient = StartBlockGradient(problem, {study.stages, kBoundBatch})};
  instance.input.learning_rate = TheoremStep(instance.input, updates);
  return instance;
}

// Means over the seeds, after every update.
struct Sides {
  std::string label;
  int64_t delta = 0;
  std::vector<double> left;
  std::vector<BoundTerms> right;

  double tightest() const {
    double least = right.front().sum() / left.front();
    for (size_t k = 0; k < left.size(); ++k) least = std::min(least, right[k].sum() / left[k]);
    return least;
  }
};

Sides Combine(const std::string& label, int64_t delta, const std::vector<Instance>& instances,
              const std::vector<Trace>& traces) {
  const size_t updates = traces.front().squared_gradient_mean.size();
  Sides sides{label, delta, std::vector<double>(updates), std::vector<BoundTerms>(updates)};
  const double share = 1.0 / static_cast<double>(instances.size());
  for (size_t seed = 0; seed < instances.size(); ++seed) {
    BoundInput input = instances[seed].input;
    input.delta = delta;
    for (size_t k = 0; k < updates; ++k) {
      input.block_gradient = traces[seed].block_gradient_max[k];
      const BoundTerms terms = TheoremBound(input, static_cast<int64_t>(k) + 1);
      sides.left[k] += share * traces[seed].squared_gradient_mean[k];
      sides.right[k].start += share * terms.start;
      sides.right[k].noise += share * terms.noise;
      sides.right[k].stale += share * terms.stale;
    }
  }
  return sides;
}

Trace TraceRandom(const BoundStudy& study, const Instance& instance, const TickSequence& sequence,
                  int64_t delta, uint64_t seed) {
  const std::vector<int64_t> updates_by_tick = UpdatesByTick(sequence);
  const CurvePlan plan{
      .ticks = sequence.ticks, .stride = sequence.ticks, .tail_stride = sequence.ticks};
  Tracer tracer(instance.problem);
  RandomDescent(instance.problem,
                {.learning_rate = instance.input.learning_rate,
                 .partition = {study.stages, kBoundBatch},
                 .minibatches = study.size.rows / kBoundBatch,
                 .delta = delta,
                 .seed = seed,
                 .plan = plan,
                 .updates_by_tick = updates_by_tick},
                {}, tracer.observer());
  return std::move(tracer.trace());
}

Trace TracePipeDream(const Instance& instance, const TickSequence& sequence) {
  const CurvePlan plan{
      .ticks = sequence.ticks, .stride = sequence.ticks, .tail_stride = sequence.ticks};
  Tracer tracer(instance.problem);
  PipelineDescent(
      instance.problem, sequence,
      {.learning_rate = instance.input.learning_rate, .batch = kBoundBatch, .plan = plan}, {},
      tracer.observer());
  return std::move(tracer.trace());
}

ChartLine LineOf(const std::string& label, bool dashed, size_t updates,
                 const std::function<double(size_t)>& value) {
  constexpr size_t kPoints = 300;
  ChartLine line{.label = label, .dashed = dashed};
  size_t last = 0;
  for (size_t i = 0; i <= kPoints; ++i) {  // evenly on a logarithmic axis
    const auto k = static_cast<size_t>(
        std::pow(static_cast<double>(updates), static_cast<double>(i) / kPoints));
    if (k == last || k > updates) continue;
    last = k;
    const double y = value(k - 1);
    line.points.push_back({static_cast<double>(k), y, y, y});
  }
  return line;
}

LineChart ChartOf(const BoundStudy& study, const std::vector<Sides>& all) {
  LineChart chart{
      .title = "Theorem 4.1 along a run, random quadratic",
      .subtitle = absl::StrFormat(
          "S = %d, batch %d, step size of the theorem, mean of %d seeds; dashed: the bound",
          study.stages, kBoundBatch, study.seeds),
      .x_label = "block updates K",
      .y_label = "mean of |∇f(w)|² so far",
      .x_log = true,
      .y_log = true};
  for (const Sides& sides : all) {
    chart.lines.push_back(
        LineOf(sides.label, false, sides.left.size(), [&](size_t k) { return sides.left[k]; }));
  }
  for (const Sides& sides : all) {
    chart.lines.push_back(LineOf(absl::StrCat("bound, ", sides.label), true, sides.left.size(),
                                 [&](size_t k) { return sides.right[k].sum(); }));
  }
  return chart;
}

Finding Holds(const Sides& sides, bool proven) {
  return {absl::StrCat("the bound holds after every update: ", sides.label,
                       proven ? "" : " (the theorem does not cover it)"),
          sides.tightest() >= 1.0,
          absl::StrFormat("at its tightest %.3g times the left side", sides.tightest())};
}

}  // namespace

absl::StatusOr<StudyResult> RunBoundStudy(const BoundStudy& study, StudyContext& context) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const TickSequence sequence,
      PipeDreamSequence(study.stages, study.size.rows / kBoundBatch * study.epochs));
  const int64_t updates = sequence.updates();
  const int64_t calls = study.seeds * (2 + static_cast<int64_t>(study.deltas.size()));
  context.Announce("problems", calls);
  std::vector<Instance> instances(study.seeds);
  PENSTOCK_RETURN_IF_ERROR(context.ForEach(
      study.seeds, [&](int64_t seed) { instances[seed] = MakeInstance(study, seed, updates); }));

  std::vector<Sides> all;
  std::vector<Trace> traces(study.seeds);
  for (const int64_t delta : study.deltas) {
    const std::string label = absl::StrCat("RPD δ = ", delta);
    context.Announce(label, calls);
    PENSTOCK_RETURN_IF_ERROR(context.ForEach(study.seeds, [&](int64_t seed) {
      traces[seed] = TraceRandom(study, instances[seed], sequence, delta, seed);
    }));
    all.push_back(Combine(label, delta, instances, traces));
  }
  context.Announce("PipeDream", calls);
  PENSTOCK_RETURN_IF_ERROR(context.ForEach(study.seeds, [&](int64_t seed) {
    traces[seed] = TracePipeDream(instances[seed], sequence);
  }));
  const int64_t proven = PipelineDelay(study.stages);
  all.push_back(Combine("PD", proven, instances, traces));

  StudyResult result{.title = "The bound of theorem 4.1 along a run",
                     .settings = {{"seeds", study.seeds},
                                  {"stages", int64_t{study.stages}},
                                  {"batch", kBoundBatch},
                                  {"block_updates", updates},
                                  {"learning_rate", instances[0].input.learning_rate},
                                  {"smoothness", instances[0].input.smoothness}}};
  result.table.columns = {"method",     "delta",       "gradient_mean",
                          "bound",      "start_term",  "noise_term",
                          "stale_term", "final_ratio", "tightest_ratio"};
  for (const Sides& sides : all) {
    const BoundTerms& terms = sides.right.back();
    const bool is_pipedream = &sides == &all.back();
    result.table.rows.push_back({std::string(is_pipedream ? "pipedream" : "rpd"), sides.delta,
                                 sides.left.back(), terms.sum(), terms.start, terms.noise,
                                 terms.stale, terms.sum() / sides.left.back(), sides.tightest()});
    result.findings.push_back(Holds(sides, !is_pipedream));
  }
  result.charts = {{"", ChartOf(study, all)}};
  return result;
}

}  // namespace penstock
