#include "inference/evaluator.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "inference/load_stage.h"
#include "worker/port_reader.h"

namespace penstock {
namespace {

bool HasPerplexity(const ModelGraph& model) {
  return model.has_tokens() && model.loss().is_log_likelihood;
}

}  // namespace

absl::StatusOr<ModelScores> Evaluator::Run(const DataSource& data, int64_t samples,
                                           const OnBatch& on_batch) {
  samples = std::min(samples, data.validation_samples());
  // What is carried goes from row to row of whole batches.
  if (model_.graph.FindCarrying() != nullptr) samples -= samples % batch_;
  if (samples < 1) {
    return absl::InvalidArgumentError("there is no sample to evaluate the model on");
  }
  EvaluationSums sums;
  std::unique_ptr<Stage> stage;
  int64_t batch = 0;  // of the stage
  for (int64_t done = 0; done < samples; done += batch) {
    const int64_t next = std::min(batch_, samples - done);
    if (next != batch) {
      stage = nullptr;  // before its memory is needed again
      PENSTOCK_ASSIGN_OR_RETURN(stage, LoadStage(files_, model_, next, backend_));
      batch = next;
    }
    PENSTOCK_RETURN_IF_ERROR(AddBatch(*stage, batch, data, done, sums));
    on_batch(done + batch, samples);
  }
  ModelScores scores = {.samples = samples,
                        .targets = static_cast<int64_t>(sums.weight),
                        .evaluation = sums.Result(model_.graph)};
  if (HasPerplexity(model_.graph)) scores.perplexity = std::exp(scores.evaluation.loss);
  return scores;
}

absl::Status Evaluator::AddBatch(Stage& stage, int64_t batch, const DataSource& data, int64_t first,
                                 EvaluationSums& sums) const {
  PortReader reader(model_.graph, batch, &data);
  PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports,
                            reader.Read(stage, Split::kValidation, first));
  PENSTOCK_ASSIGN_OR_RETURN(const Stage::Evaluated evaluated,
                            stage.Evaluate(stage.version(), Tensor(), ports,
                                           reader.StartOf(stage, Split::kValidation, first)));
  PENSTOCK_ASSIGN_OR_RETURN(const double loss, stage.ReadLoss(evaluated.output));
  if (!std::isfinite(loss)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the loss of samples ", first, " to ", first + batch - 1, " is ",
                     std::isnan(loss) ? "not a number" : "infinite",
                     "; the model has diverged in training, or the data are damaged"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> ranks, stage.ReadRanks(evaluated.ranks));
  // A loss over classes tells which targets count; of others all do.
  const int64_t valid = ranks.empty() ? batch * model_.graph.targets_per_sample()
                                      : static_cast<int64_t>(ranks.size()) -
                                            std::count(ranks.begin(), ranks.end(), -1);
  sums += EvaluationSums::Of(loss, static_cast<double>(valid), ranks);
  return absl::OkStatus();
}

}  // namespace penstock
