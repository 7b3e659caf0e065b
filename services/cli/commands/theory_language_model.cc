#include "services/cli/commands/theory_language_model.h"

#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "studies/experiments/language_model_study.h"
#include "services/cli/training_runner.h"

namespace penstock {

absl::StatusOr<StudyResult> RunLanguageModel(const LanguageModelOptions& options, Console& console,
                                             Interrupt& interrupt) {
  if (options.text_path.empty()) {
    return absl::InvalidArgumentError(
        "--data: the study language-model needs a text; give Tiny Shakespeare, as the paper has "
        "it, "
        "or another of about a megabyte");
  }
  LanguageModelStudy study = {.text_path = options.text_path};
  if (options.full) {
    study.local_steps = {1, 4, 8};
    study.learning_rates = LanguageModelGrid();
  }
  if (options.microbatches.has_value()) study.microbatches = *options.microbatches;
  TrainingRunner runner(options.threads, console, RealClock(), interrupt);
  return RunLanguageModelStudy(std::move(study), JoinPath(options.output, "language-model-runs"),
                               RealFiles(), runner);
}

}  // namespace penstock
