// The language model of arXiv 2606.03498 (figure 4) as jobs of the product.
//
// A causal Transformer on the characters of a text: the first stage embeds tokens and positions, each block is
// a stage, the last one has LayerNorm and head. PipeDream and LocalSGD, with as many replicas as stages, train
// it by plain SGD on the same microbatches in the same order. Time is counted in ticks (theory/ticks.h); what
// PipeDream needs for its microbatches is the budget, and LocalSGD makes as many whole rounds as fit.
//
// Tokens are the characters of the text, 65 of Tiny Shakespeare, with which the model has the paper's 11,123,200 parameters.
// First weights are those of PyTorch's modules. A microbatch is a stretch of the text, and no two of an epoch overlap.
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
// The ends of the paper's curves at this step size after its 1024 microbatches, of PipeDream and of LocalSGD by its local steps,
// read from the vector figure. They are losses of single microbatches.
struct PublishedEnd {
  int64_t local_steps;  // 0: PipeDream
  double loss;
};
inline constexpr PublishedEnd kPublishedEnds[] = {{0, 2.48}, {1, 2.85}, {4, 2.67}, {8, 2.66}};
inline constexpr int64_t kPublishedMicrobatches = 1024;
inline constexpr double kPublishedTolerance = 0.05;
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
  // Filled in by RunLanguageModelStudy: what the text is, and how many characters it has.
  std::string text_sha256;
  int64_t vocabulary = 65;
  int64_t blocks = 14;
  int64_t width = 256;
  int64_t heads = 8;
  int64_t context = 128;
  int64_t batch = 32;                             // samples of a microbatch
  int64_t microbatches = kPublishedMicrobatches;  // of PipeDream
  uint64_t seed = 0;                              // of weights and order of samples
  std::vector<int64_t> local_steps = {4};         // H; each is a method of its own
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
