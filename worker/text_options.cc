#include "worker/text_options.h"

namespace penstock {

TextOptions TextOptionsOf(const v1::JobSpec& spec, const ResolvedJob& job, const std::string& path,
                          int64_t size_bytes_max) {
  const v1::TextSpec& text = spec.data().text();
  return {.path = path,
          .sha256 = text.sha256(),
          .validation_fraction = text.validation_fraction(),
          .context = job.model.targets_per_sample(),
          .needs_validation = spec.validation().every_steps() > 0,
          .validation_windows = job.validation_batches * job.microbatch_samples,
          .seed = job.seed,
          .size_bytes_max = size_bytes_max};
}

}  // namespace penstock
