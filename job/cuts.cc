// Where a job's runs drain (the contract is in resolve.h).
#include <map>

#include "job/resolve.h"

namespace penstock {

std::vector<Cut> CutsOf(const v1::JobSpec& spec, int64_t first_step,
                        absl::Span<const int64_t> extra_cuts) {
  const int64_t steps = spec.training().steps();
  std::map<int64_t, Cut> cuts;
  // Marks every `every` steps and the last one; 0 means never.
  const auto mark = [&](int64_t every, bool Cut::*what) {
    if (every <= 0) {
      return;
    }
    for (int64_t step = (first_step / every + 1) * every; step < steps; step += every) {
      cuts[step].*what = true;
    }
    cuts[steps].*what = true;
  };
  mark(spec.validation().every_steps(), &Cut::validate);
  mark(spec.checkpoint().every_steps(), &Cut::checkpoint);
  if (const int64_t begins = spec.pipeline().synchronous_steps(); begins > 0 && begins < steps) {
    cuts[begins];
  }
  for (const int64_t step : extra_cuts) {
    if (step < steps) {
      cuts[step];
    }
  }
  // A job that names a directory keeps what it has trained there.
  cuts[steps].checkpoint |= !spec.checkpoint().directory().empty();

  std::vector<Cut> result;
  for (auto& [step, cut] : cuts) {
    if (step > first_step) {
      cut.step = step;
      result.push_back(cut);
    }
  }
  return result;
}

}  // namespace penstock
