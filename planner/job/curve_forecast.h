// CurveForecast: when a run will reach a loss, from the part of its curve that is there and the whole curves of earlier
// runs of its setup.
//
// Runs are compared after equal steps, because the learning rate follows the steps and bends all curves of a setup at the
// same place. There are two ways to go on, and both are linear in the logarithm of the loss:
//
//   as earlier runs did:  log loss(n) = m(n) + a + b (m(n) - m(end)) + sum over runs r of c_r (log loss_r(n) - m(n))
//   on the run's own line: log loss(n) = a + b log n
//
// with m the mean of the earlier runs' logarithms, and end the last step that was seen. The weights of the first are fitted
// to the last 70 % of the steps that were seen, with a normal prior at zero: without evidence a run is like the mean of the
// others. A run that is slower than others by a factor is off by a (if losses fall by a power of the steps) or by b (if they
// fall exponentially), and one that learns as some of them do takes after those. The line is through the second half.
//
// Which way is taken, and how far off it may be, is asked of the earlier runs themselves: each is predicted from its own
// beginning and the others (ADR 47 has the numbers).
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/job/loss_curve.h"

namespace penstock {

class CurveForecast {
 public:
  enum class Way { kEarlierRuns, kOwnLine };
  struct Steps {
    double median = 0;
    // The bounds between which it is with a probability of 90 %.
    double low = 0;
    double high = 0;
  };
  // A forecast goes no further than this many times the steps of the job.
  static constexpr double kHorizon = 4;

  // `seen`: of a run of `steps` steps so far. `earlier`: runs of the same setup with as many steps; those that did not get
  // to their end, or began after the end of `seen`, are left out.
  // Errors: InvalidArgument: a curve of fewer than two points or whose steps do not rise, a loss that is not a positive
  // number, or `seen` has more steps than the job.
  static absl::StatusOr<CurveForecast> Make(const LossCurve& seen, int64_t steps,
                                            absl::Span<const LossCurve> earlier);

  // Returns when the run first has `loss`, after the steps that were seen. Absent: not before the horizon.
  // REQUIRES: loss > 0.
  std::optional<Steps> StepsTo(double loss) const;

  Way way() const { return way_; }
  int earlier_runs() const { return earlier_runs_; }  // that were asked

 private:
  // The loss to come, as straight lines between points and from the last one on.
  struct Path {
    struct Point {
      double log_steps = 0;
      double log_loss = 0;
    };
    std::vector<Point> points;  // the first: the end of what was seen
    double slope = 0;           // after the last point

    std::optional<double> LogStepsTo(double log_loss) const;
  };
  // How far off the ways are on the earlier runs.
  struct Misses {
    double sum = 0;      // of the misses' sizes
    double squares = 0;  // of the misses, each as a part of the way from the end of what was seen
    int count = 0;
  };

  CurveForecast() = default;
  static Path OwnLine(const LossCurve& seen, int64_t steps);
  // REQUIRES: two earlier runs at least, all whole.
  static Path LikeEarlier(const LossCurve& seen, int64_t steps,
                          absl::Span<const LossCurve> earlier);
  static Path PathOf(Way way, const LossCurve& seen, int64_t steps,
                     absl::Span<const LossCurve> earlier);
  // Predicts each earlier run from the others and its steps up to `end`.
  static Misses MissesOf(Way way, int64_t end, int64_t steps, absl::Span<const LossCurve> earlier);

  Way way_ = Way::kOwnLine;
  int earlier_runs_ = 0;
  Path path_;
  // Of the logarithm of the steps, as a part of the way from the end of what was seen.
  double deviation_ = 0;
};

}  // namespace penstock
