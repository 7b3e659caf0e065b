// config.json of a directory of transformers: what is taken is a model that builds or is refused by its keys, and no number of
// the file does more harm than that.
#include "job/defaults.h"
#include "job/hugging_face/read_config.h"
#include "job/resolve.h"
#include "tests/fuzz/fuzz_target.h"

PENSTOCK_FUZZ_TARGET(model_config) {
  using namespace penstock;
  v1::HuggingFaceSpec asked;
  asked.set_directory("m");
  FuzzBytes input(data, size);
  const absl::string_view head = input.TakeUntil('\0');
  if (!head.empty()) asked.set_head(std::string(head));
  const absl::StatusOr<v1::ModelSpec> model = ModelOfHuggingFace(input.rest(), asked);
  if (!model.ok()) return 0;
  FuzzAccepted();
  PENSTOCK_CHECK(!model->has_hugging_face() && model->pretrained().directory() == "m");
  v1::JobSpec job;
  job.set_name("fuzzed");
  *job.mutable_model() = *model;
  job.mutable_data()->mutable_synthetic();
  job.mutable_training()->set_steps(1);
  job.mutable_training()->set_batch(1);
  job.mutable_training()->set_microbatches(1);
  job.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  FillDefaults(job);
  const absl::StatusOr<ResolvedJob> resolved = ResolveJob(job);
  PENSTOCK_CHECK(resolved.ok() || absl::IsInvalidArgument(resolved.status()));
  return 0;
}
