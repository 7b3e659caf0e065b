// PACI against methods that flush, in the time to a loss: `penstock study paci`.
//
// Thresholds: PACI's validation losses at 80, 90 and 100 % of its steps, late in the decay of the rate. The speed-up over
// another method is the time that it takes to the loss, over the time that PACI takes. The paper compares whole
// runs that end at the same perplexity, and its times to three perplexities on the way; losses that PACI's own run
// passes are the same rule for runs of any length. A method whose run ends above a threshold counts with its whole time:
// the speed-up is then at least this. In the same number of steps PACI is ahead by the ratio of the times of a
// step, the bound, if staleness costs nothing; it falls short of it by what staleness costs.
//
// Losses are means over the seeds, at each validation; the speed-ups of the seeds by themselves give least and
// greatest.
//
// Both methods are trained by the serial reference (worker/reference.h), which is what a cluster computes bit for bit,
// each run in one thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "studies/experiments/paci.h"
#include "studies/experiments/training_context.h"
#include "studies/theory/study.h"

namespace penstock {

struct PaciStudyOptions {
  std::string
      directory;  // where finished runs are kept, and where those of an earlier call are found
  // Trains nothing: reports the settings all of whose runs are there.
  bool only_finished = false;
};

// Errors: those of CheckPaci, of the text (NotFound, InvalidArgument if it is too short), of KeptRuns; FailedPrecondition
// if no setting is finished and nothing is to be trained; Cancelled if the context says to stop: finished runs are
// then kept.
absl::StatusOr<StudyResult> RunPaciStudy(PaciStudy study, const PaciStudyOptions& options,
                                         Files& files, TrainingContext& context);

}  // namespace penstock
