// The language model of arXiv 2606.03498 (figure 4) as jobs of the product.
//
// A causal Transformer on the characters of a text: the first stage embeds tokens and positions, each block is
// a stage, the last one has LayerNorm and head. PipeDream and LocalSGD, with as many replicas as stages, train
// it by plain SGD on the same microbatches in the same order. Time is counted in ticks (theory/ticks.h); what
// PipeDream needs for its microbatches is the budget, and LocalSGD makes as many whole rounds as fit.
//
// The paper's model has 11,123,200 parameters with the 65 characters of Tiny Shakespeare as its tokens. Tokens
// are bytes here, so both the embedding and the head have 256 rows: 11,220,992.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/graph.h"
#include "penstock/v1/job.pb.h"
#include "studies/theory/ticks.h"
#include "studies/theory/tuning.h"

namespace penstock {

// The paper's step size, its grid, and its limits of stability for the language model.
inline constexpr double kLanguageModelRate = 0.125;
inline std::vector<double> LanguageModelGrid() { return PowersOfTwo(-4, 1); }
inline constexpr TailLimits kLanguageModelLimits = {.variation = 0.25,
                                                    .rising_fraction = 0.55,
                                                    .rise_max = 0.10,
                                                    .total_variation = 10.0,
                                                    .log_slope = 1e-3};
// No study has more microbatches.
inline constexpr int64_t kLanguageModelMicrobatchesMax = 100'000;

struct LanguageModelStudy {
  std::string text_path;
  std::string text_sha256;  // filled in by RunLanguageModelStudy
  int64_t vocabulary =
      65;  // the characters of Tiny Shakespeare; RunLanguageModelStudy counts those of the text
  int64_t blocks = 14;
  int64_t width = 256;
  int64_t heads = 8;
  int64_t context = 128;
  int64_t batch = 32;                      // samples of a microbatch
  int64_t microbatches = 1024;             // of PipeDream
  uint64_t seed = 0;                       // of weights and order of samples
  std::vector<int64_t> local_steps = {4};  // H; each is a method of its own
  std::vector<double> learning_rates = {
      kLanguageModelRate};  // that every method is tried with, rising

  int32_t stages() const { return static_cast<int32_t>(blocks) + 2; }
  int64_t tokens() const { return batch * context; }  // of a microbatch
  int64_t ticks() const { return 2 * microbatches + 2 * (stages() - 1); }
};

// A method of the study.
struct LanguageModelMethod {
  int64_t local_steps = 0;  // 0: PipeDream

  bool is_pipedream() const { return local_steps == 0; }
  std::string name() const;   // of the catalog: "local-sgd"
  std::string label() const;  // "LocalSGD H = 4"
};
// PipeDream first.
std::vector<LanguageModelMethod> MethodsOf(const LanguageModelStudy& study);

// Errors: InvalidArgument: no microbatches or too many, a number of local steps of which no round fits into the
// budget (says which number of microbatches would do), no local steps or step size, or what ResolveJob finds.
absl::Status CheckLanguageModel(const LanguageModelStudy& study);

// The functions below REQUIRE that the study was checked.

// Returns how many microbatches a method trains within the budget.
int64_t MicrobatchesOf(const LanguageModelStudy& study, const LanguageModelMethod& method);
// When they are trained. Errors: those of PipeDreamSequence.
absl::StatusOr<TickSequence> SequenceOf(const LanguageModelStudy& study,
                                        const LanguageModelMethod& method);
// Complete: with its defaults.
v1::JobSpec JobOf(const LanguageModelStudy& study, const LanguageModelMethod& method,
                  double learning_rate);
std::vector<LayerRange> StagesOf(const LanguageModelStudy& study);

}  // namespace penstock
