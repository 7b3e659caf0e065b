// PipeDream against LocalSGD on the language model of arXiv 2606.03498, training loss over ticks (figure 4):
// `penstock theory language-model`.
//
// Both are trained by the serial reference (worker/reference.h), which is what a cluster computes bit for bit,
// each run in one thread. Losses are running means over as many microbatches as there are stages: of LocalSGD
// one of every replica. With several step sizes the study takes each method at the one that the paper's rule
// chooses (theory/tuning.h), looking at these means.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "studies/experiments/language_model.h"
#include "studies/experiments/training_context.h"
#include "studies/theory/study.h"

namespace penstock {

// `directory`: where finished runs are kept, and where those of an earlier call are found.
//
// Errors: those of CheckLanguageModel, of the text (NotFound, InvalidArgument if it is too short), of KeptRuns;
// Cancelled if the context says to stop: finished runs are then kept.
absl::StatusOr<StudyResult> RunLanguageModelStudy(LanguageModelStudy study,
                                                  const std::string& directory, Files& files,
                                                  TrainingContext& context);

}  // namespace penstock
