// Where a job's runs drain (the contract is in resolve.h).
#include <algorithm>
#include <limits>

#include "job/resolve.h"

namespace penstock {

std::vector<Cut> CutsOf(const v1::JobSpec& spec, int64_t first_step,
                        absl::Span<const int64_t> extra_cuts) {
  const int64_t steps = spec.training().steps();
  const int64_t validate_every = spec.validation().every_steps();
  const int64_t checkpoint_every = spec.checkpoint().every_steps();
  // Cuts of no period, ascending.
  std::vector<int64_t> single(extra_cuts.begin(), extra_cuts.end());
  single.push_back(spec.pipeline().synchronous_steps());
  single.push_back(steps);
  std::sort(single.begin(), single.end());

  // There may be a million, so none is kept twice.
  const auto next_of = [](int64_t every, int64_t step) {
    return every > 0 ? (step / every + 1) * every : std::numeric_limits<int64_t>::max();
  };
  std::vector<Cut> result;
  int64_t step = first_step;
  while (step < steps) {
    step = std::min({next_of(validate_every, step), next_of(checkpoint_every, step),
                     *std::upper_bound(single.begin(), single.end(), step)});
    Cut& cut = result.emplace_back();
    cut.step = step;
    // After the last step there is one of each kind that the job has.
    const auto is_of = [&](int64_t every) {
      return every > 0 && (step == steps || step % every == 0);
    };
    cut.validate = is_of(validate_every);
    cut.checkpoint = is_of(checkpoint_every);
  }
  // A job that names a directory keeps what it has trained there.
  if (!result.empty()) result.back().checkpoint |= !spec.checkpoint().directory().empty();
  return result;
}

}  // namespace penstock
