// The experiment of PACI (arXiv 2606.07881) at a size that one core trains in minutes, as jobs of the product.
//
// A GPT on the bytes of a text, a block on each of 8 stages, 8 microbatches in a step and in an update. PACI and 1F1B
// with a flush at every step train it from the same weights on the same batches. Three more methods are compared
// without training of their own, because they compute the weights of 1F1B: zb-h1 and zb-h2, which are other orders of the
// same step, and a flush with twice the microbatches, of half the samples each.
//
// Time: devices are equal, so forward, gradient of the input and gradient of the weights of a microbatch take a third
// of a unit each on every stage, of half a microbatch half as long, and messages and updates nothing. The unit is a
// microbatch's time on a stage. A flush with M microbatches on S stages then takes M + S - 1 of its microbatches for a step,
// PACI takes M and, as it drains before each validation, S - 1 more from one validation to the next. Validations
// take no time: all methods have the same.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/graph.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// One optimizer at one rate, with one batch and one length of training.
struct PaciSetting {
  std::string optimizer;  // "adamw" or "muon"
  double learning_rate = 0.0;
  int64_t batch = 0;  // samples of a step
  int64_t steps = 0;

  std::string name() const;   // of files: "adamw-0.0003-batch8-8000"
  std::string group() const;  // all but the length, for people: "adamw 0.0003, batch 8"
  friend bool operator==(const PaciSetting&, const PaciSetting&) = default;
};

// An optimizer with the rate and the length of the experiment.
struct PaciOptimizer {
  const char* name;
  double learning_rate;
  int64_t steps;
};
inline constexpr PaciOptimizer kPaciOptimizers[] = {{"adamw", 3e-4, 64'000}, {"muon", 3e-3, 8'000}};

struct PaciStudy {
  std::string text_path;
  std::string text_sha256;  // filled in by RunPaciStudy
  // Every combination is a setting.
  std::vector<std::string> optimizers = {"adamw", "muon"};
  std::vector<double> learning_rates;  // empty: that of each optimizer
  std::vector<int64_t> batches = {8};
  std::vector<int64_t> steps;  // empty: those of each optimizer
  int64_t seeds = 3;           // of weights and order of samples, from 1 on

  int32_t stages = 8;
  int64_t microbatches = 8;
  int64_t width = 32;
  int64_t heads = 2;
  int64_t context = 32;
  int64_t validate_every = 500;      // steps at most; a run has 16 validations at least
  int64_t validation_samples = 640;  // rounded up to whole batches
};

// What is compared.
struct PaciContender {
  std::string name;     // "flush_m16": part of keys
  std::string label;    // "Flush m = 16"
  std::string method;   // whose schedule stamps the steps
  std::string trained;  // the method whose training it has
  int64_t microbatches = 0;
};
// PACI, Flush, Flush with twice the microbatches, zb-h1, zb-h2.
std::vector<PaciContender> ContendersOf(const PaciStudy& study);

// By optimizer, rate, batch and steps. REQUIRES: all optimizers are those of kPaciOptimizers.
std::vector<PaciSetting> SettingsOf(const PaciStudy& study);

// Errors: InvalidArgument: no seed, batch or step, an optimizer that there is not, or what ResolveJob finds.
absl::Status CheckPaci(const PaciStudy& study);

// The functions below REQUIRE that the study was checked.

// The steps between two validations.
int64_t ValidationInterval(const PaciStudy& study, const PaciSetting& setting);
// Complete: with its defaults. `method`: "1f1b" or "paci".
v1::JobSpec JobOf(const PaciStudy& study, const PaciSetting& setting, absl::string_view method,
                  int64_t seed);
std::vector<LayerRange> StagesOf(const PaciStudy& study);

// Returns how long `steps` steps take between two drains, in units of a microbatch's time on a stage.
absl::StatusOr<double> TimeOfSteps(const PaciStudy& study, const PaciContender& contender,
                                   int64_t steps);

}  // namespace penstock
