// Evaluator: measures a trained model on data, in this process, one forward after the other.
//
// Dropout is off, and normalisations read their running statistics. The numbers do not depend on the batch but for
// rounding: a last batch that is not full is a smaller one.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "compute/backend.h"
#include "compute/stage.h"
#include "inference/checkpoint_model.h"
#include "worker/data_source.h"
#include "worker/evaluation.h"

namespace penstock {

// What a model makes of data.
struct ModelScores {
  int64_t samples = 0;
  int64_t targets = 0;  // valid ones
  Evaluation evaluation;
  std::optional<double> perplexity;  // of a sequence model whose loss is a log-likelihood
};

class Evaluator {
 public:
  // Told after each batch: samples done, and of how many.
  using OnBatch = std::function<void(int64_t done, int64_t samples)>;

  // `batch`: samples of a forward. REQUIRES: `files`, `model`, `backend` outlive it.
  Evaluator(Files& files, const CheckpointModel& model, Backend& backend, int64_t batch)
      : files_(files), model_(model), backend_(backend), batch_(batch) {}

  // Measures the first `samples` of data that was opened for it (OpenEvaluationData), or all if it has fewer.
  // Errors: InvalidArgument (there are none; an id that the model does not know), FailedPrecondition (the loss is not
  // finite), those of LoadStage and of `data`.
  absl::StatusOr<ModelScores> Run(const DataSource& data, int64_t samples, const OnBatch& on_batch);

 private:
  // Adds the samples from `first` on, as many as a forward of `stage` takes.
  absl::Status AddBatch(Stage& stage, int64_t batch, const DataSource& data, int64_t first,
                        EvaluationSums& sums) const;

  Files& files_;
  const CheckpointModel& model_;
  Backend& backend_;
  const int64_t batch_;
};

}  // namespace penstock
