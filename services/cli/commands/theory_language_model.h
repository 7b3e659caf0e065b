// penstock theory language-model: the study that trains a network (studies/experiments/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/cli/console.h"
#include "services/cli/interrupt.h"
#include "studies/theory/study.h"

namespace penstock {

inline constexpr char kLanguageModel[] = "language-model";

struct LanguageModelOptions {
  std::string text_path;
  bool full = false;                    // the paper's grid of step sizes, and H = 1, 4, 8
  std::optional<int64_t> microbatches;  // of PipeDream; default: the paper's
  std::string output;                   // finished runs are kept below it
  int threads = 1;                      // runs at a time
};

// Errors: InvalidArgument without a text; those of RunLanguageModelStudy.
absl::StatusOr<StudyResult> RunLanguageModel(const LanguageModelOptions& options, Console& console,
                                             Interrupt& interrupt);

}  // namespace penstock
