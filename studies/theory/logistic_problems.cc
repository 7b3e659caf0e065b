#include "studies/theory/logistic_problems.h"

#include "base/status.h"

namespace penstock {

absl::StatusOr<LogisticProblems> MakeLogisticProblems(const LogisticProblemOptions& options,
                                                      StudyContext& context) {
  LogisticProblems problems;
  problems.noise.resize(options.seeds);
  problems.by_seed.resize(options.data != nullptr ? 1 : options.seeds);
  PENSTOCK_RETURN_IF_ERROR(context.ForEach(options.seeds, [&](int64_t seed) {
    if (options.data != nullptr) {
      if (seed == 0) problems.by_seed[0] = *options.data;
      return;
    }
    problems.by_seed[seed] = SyntheticLogistic(options.size, seed);
    // PipeDream computes this many in the budget; the others compute fewer.
    const int64_t count = (options.ticks / 2 + 1) * options.size.width;
    if (options.noise > 0.0) problems.noise[seed] = GradientNoise(options.noise, count, seed);
  }));
  return problems;
}

}  // namespace penstock
