#include "studies/experiments/paci.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "schedule/catalog/catalog.h"
#include "schedule/simulate.h"

namespace penstock {
namespace {

constexpr int kBlockLayers = 2;  // attention and MLP
constexpr int kEndLayers = 2;    // final norm and head
constexpr int64_t kValidationsMin = 16;
constexpr double kPassesOfMicrobatch = 3.0;  // forward, gradient of input, gradient of weights
constexpr StageCosts kEqualPasses = {
    .forward_s = 1.0, .backward_input_s = 1.0, .backward_weight_s = 1.0};

// Null: there is none.
const PaciOptimizer* FindOptimizer(absl::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kPaciOptimizers), std::end(kPaciOptimizers),
                   [&](const PaciOptimizer& optimizer) { return optimizer.name == name; });
  return found == std::end(kPaciOptimizers) ? nullptr : found;
}

absl::Status CheckThere(absl::string_view what, bool is_there) {
  if (is_there) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": there is none; expected at least one"));
}

void SetOptimizer(const PaciSetting& setting, v1::OptimizerSpec& spec) {
  if (setting.optimizer == "muon") {
    v1::MuonSpec& muon = *spec.mutable_muon();
    muon.set_learning_rate(setting.learning_rate);
    muon.set_weight_decay(0.1);
    return;
  }
  v1::AdamWSpec& adamw = *spec.mutable_adamw();
  adamw.set_learning_rate(setting.learning_rate);
  adamw.set_beta1(0.9);
  adamw.set_beta2(0.95);
  adamw.set_weight_decay(0.1);
}

}  // namespace

std::string PaciSetting::name() const {
  return absl::StrFormat("%s-%g-batch%d-%d", optimizer, learning_rate, batch, steps);
}

std::string PaciSetting::group() const {
  return absl::StrFormat("%s %g, batch %d", optimizer, learning_rate, batch);
}

std::vector<PaciContender> ContendersOf(const PaciStudy& study) {
  const int64_t m = study.microbatches;
  return {
      {"paci", "PACI", "paci", "paci", m},
      {absl::StrCat("flush_m", m), absl::StrCat("Flush m = ", m), "1f1b", "1f1b", m},
      {absl::StrCat("flush_m", 2 * m), absl::StrCat("Flush m = ", 2 * m), "1f1b", "1f1b", 2 * m},
      {"zb_h1", "zb-h1", "zb-h1", "1f1b", m},
      {"zb_h2", "zb-h2", "zb-h2", "1f1b", m}};
}

std::vector<PaciSetting> SettingsOf(const PaciStudy& study) {
  std::vector<PaciSetting> settings;
  for (const std::string& name : study.optimizers) {
    const PaciOptimizer* const optimizer = FindOptimizer(name);
    PENSTOCK_CHECK(optimizer != nullptr);
    const std::vector<double> rates = study.learning_rates.empty()
                                          ? std::vector<double>{optimizer->learning_rate}
                                          : study.learning_rates;
    const std::vector<int64_t> lengths =
        study.steps.empty() ? std::vector<int64_t>{optimizer->steps} : study.steps;
    for (const double rate : rates) {
      for (const int64_t batch : study.batches) {
        for (const int64_t steps : lengths) settings.push_back({name, rate, batch, steps});
      }
    }
  }
  return settings;
}

absl::Status CheckPaci(const PaciStudy& study) {
  PENSTOCK_RETURN_IF_ERROR(CheckThere("seeds", study.seeds > 0));
  PENSTOCK_RETURN_IF_ERROR(CheckThere("batches", !study.batches.empty()));
  PENSTOCK_RETURN_IF_ERROR(CheckThere("optimizers", !study.optimizers.empty()));
  for (const std::string& name : study.optimizers) {
    if (FindOptimizer(name) != nullptr) continue;
    const auto print = [](std::string* out, const PaciOptimizer& optimizer) {
      out->append(optimizer.name);
    };
    return absl::InvalidArgumentError(absl::StrCat("optimizers: is ", name, "; expected one of ",
                                                   absl::StrJoin(kPaciOptimizers, ", ", print)));
  }
  for (const PaciSetting& setting : SettingsOf(study)) {
    if (setting.steps < 1 || setting.batch < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(setting.name(), ": expected at least one step and one sample in a batch"));
    }
    for (const char* method : {"1f1b", "paci"}) {
      PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job,
                                ResolveJob(JobOf(study, setting, method, 1)));
      PENSTOCK_RETURN_IF_ERROR(CheckStages(job, study.stages));
    }
  }
  return absl::OkStatus();
}

int64_t ValidationInterval(const PaciStudy& study, const PaciSetting& setting) {
  return std::clamp<int64_t>(setting.steps / kValidationsMin, 1, study.validate_every);
}

v1::JobSpec JobOf(const PaciStudy& study, const PaciSetting& setting, absl::string_view method,
                  int64_t seed) {
  v1::JobSpec spec;
  spec.set_name("paci");
  v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
  gpt.set_layers(study.stages);
  gpt.set_width(study.width);
  gpt.set_heads(study.heads);
  gpt.set_context(study.context);
  gpt.set_tied_head(false);
  v1::TextSpec& text = *spec.mutable_data()->mutable_text();
  text.set_path(study.text_path);
  text.set_sha256(study.text_sha256);

  v1::TrainingSpec& training = *spec.mutable_training();
  training.set_steps(setting.steps);
  training.set_batch(setting.batch);
  training.set_microbatches(study.microbatches);
  SetOptimizer(setting, *training.mutable_optimizer());
  v1::LearningRateSpec& rate = *training.mutable_learning_rate();
  rate.set_warmup_steps(std::max<int64_t>(1, setting.steps / 100));
  rate.set_decay("cosine");
  rate.set_final_fraction(0.1);
  training.set_seed(static_cast<uint64_t>(seed));
  training.set_threads(1);  // its sums do not depend on how many runs there are at a time
  v1::ValidationSpec& validation = *spec.mutable_validation();
  validation.set_every_steps(ValidationInterval(study, setting));
  validation.set_batches((study.validation_samples + setting.batch - 1) / setting.batch);
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  pipeline.set_method(std::string(method));
  pipeline.set_stages(study.stages);
  FillDefaults(spec);
  return spec;
}

std::vector<LayerRange> StagesOf(const PaciStudy& study) {
  std::vector<LayerRange> stages;
  int next = 0;
  for (int32_t s = 0; s < study.stages; ++s) {
    const int layers = kBlockLayers + (s == 0 ? 1 : 0) +  // the embedding
                       (s == study.stages - 1 ? kEndLayers : 0);
    stages.push_back({next, layers});
    next += layers;
  }
  return stages;
}

absl::StatusOr<double> TimeOfSteps(const PaciStudy& study, const PaciContender& contender,
                                   int64_t steps) {
  PENSTOCK_ASSIGN_OR_RETURN(const Method* method, FindMethod(contender.method));
  const ScheduleOptions options = {.topology = StraightPipeline(study.stages),
                                   .microbatches_per_step = contender.microbatches};
  PENSTOCK_ASSIGN_OR_RETURN(
      const Schedule schedule,
      BuildSchedule(*method, options, {.first = 0, .count = steps * contender.microbatches}));
  const SimulationCosts costs = {.stages = std::vector<StageCosts>(study.stages, kEqualPasses)};
  PENSTOCK_ASSIGN_OR_RETURN(const SimulationResult result, Simulate(schedule, costs));
  return result.makespan_s / kPassesOfMicrobatch * static_cast<double>(study.microbatches) /
         static_cast<double>(contender.microbatches);
}

}  // namespace penstock
