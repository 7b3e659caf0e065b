// One worker with one thread that trains a GPT on a text, for comparisons with another framework:
//
//     compute_train TEXT LAYERS WIDTH HEADS TIME BATCH f32|bf16
//
// Reads a number of steps from each line of standard input, does that many, and answers with one line:
// the seconds they took and the loss of the last one. A step is everything: forward, backward, clipping
// to norm 1, AdamW with a warm-up of 50 steps.
//
// Sample s of a step is the text from byte (s * 7919) mod (size - TIME) on, one byte a token.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/clip.h"
#include "compute/learning_rate.h"
#include "compute/stage.h"
#include "model/families/gpt.h"

namespace penstock {
namespace {

constexpr int64_t kWarmupSteps = 50;
constexpr Clip kClip = {Clip::Kind::kGlobalNorm, 1.0};

class Trainer {
 public:
  static absl::StatusOr<Trainer> Create(const std::string& text, const GptConfig& config,
                                        int64_t batch, Precision precision) {
    Trainer trainer;
    trainer.text_ = text;
    trainer.samples_ = batch;
    trainer.time_ = config.context;
    PENSTOCK_ASSIGN_OR_RETURN(const ModelGraph model, BuildGpt(config));
    PENSTOCK_ASSIGN_OR_RETURN(trainer.backend_, MakeCpuBackend(1));
    StageOptions options;
    options.layers = {0, model.size()};
    options.samples = batch;
    options.precision = precision;
    options.optimizer = AdamWConfig{};
    options.seed = 1;
    PENSTOCK_ASSIGN_OR_RETURN(trainer.stage_, Stage::Create(*trainer.backend_, model, options));
    trainer.stage_->InitializeWeights();
    trainer.learning_rate_.peak = 1e-3;
    trainer.learning_rate_.warmup_samples = kWarmupSteps * batch;
    trainer.scales_.resize(model.size());
    trainer.norms_.resize(model.size());
    for (int port = 0; port < 2; ++port) {
      trainer.ports_.push_back(
          trainer.backend_->pool().AcquireTensor(DType::kI32, {batch, config.context}));
    }
    return trainer;
  }

  absl::StatusOr<double> Step() {
    FillTokens();
    const MicrobatchId id(step_);
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor mean_loss,
                              stage_->Forward(id, step_ * samples_, step_, Tensor(), ports_));
    PENSTOCK_ASSIGN_OR_RETURN(const double loss, stage_->ReadLoss(mean_loss));
    PENSTOCK_RETURN_IF_ERROR(stage_->BackwardInput(id, step_, Tensor(), 1.0f).status());
    PENSTOCK_RETURN_IF_ERROR(stage_->BackwardWeight(id));
    stage_->CombineUses();
    PENSTOCK_RETURN_IF_ERROR(stage_->LayerSquaredNorms(absl::MakeSpan(norms_)));
    ClipFactors(kClip, norms_, CombinedNorm(norms_), absl::MakeSpan(scales_));
    ++step_;
    PENSTOCK_RETURN_IF_ERROR(stage_->Step(
        step_, {.learning_rate = learning_rate_.At(step_ * samples_), .gradient_scales = scales_}));
    return loss;
  }

 private:
  void FillTokens() {
    auto* ids = ports_[0].data<int32_t>();
    auto* targets = ports_[1].data<int32_t>();
    const auto positions = static_cast<int64_t>(text_.size()) - time_;
    for (int64_t row = 0; row < samples_; ++row) {
      const int64_t first = (step_ * samples_ + row) * 7919 % positions;
      for (int64_t t = 0; t < time_; ++t) {
        ids[row * time_ + t] = static_cast<uint8_t>(text_[first + t]);
        targets[row * time_ + t] = static_cast<uint8_t>(text_[first + t + 1]);
      }
    }
  }

  std::string text_;
  int64_t samples_ = 0, time_ = 0;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stage> stage_;
  LearningRate learning_rate_;
  std::vector<float> scales_;
  std::vector<double> norms_;
  std::vector<Tensor> ports_;  // tokens and targets
  int64_t step_ = 0;
};

absl::Status Run(const std::vector<std::string>& arguments) {
  std::ifstream file(arguments[0], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  GptConfig config;
  config.layers = std::atoi(arguments[1].c_str());
  config.width = std::atoi(arguments[2].c_str());
  config.heads = std::atoi(arguments[3].c_str());
  config.context = std::atoi(arguments[4].c_str());
  if (static_cast<int64_t>(text.size()) <= config.context) {
    return absl::InvalidArgumentError(arguments[0] + " is missing or shorter than a sample");
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      Trainer trainer,
      Trainer::Create(text, config, std::atoi(arguments[5].c_str()),
                      arguments[6] == "bf16" ? Precision::kBf16 : Precision::kF32));
  for (int64_t steps = 0; std::cin >> steps;) {
    const auto start = std::chrono::steady_clock::now();
    double loss = 0.0;
    for (int64_t step = 0; step < steps; ++step) {
      PENSTOCK_ASSIGN_OR_RETURN(loss, trainer.Step());
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%.6f %.9g\n", seconds.count(), loss);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 8) {
    std::cerr << "usage: compute_train TEXT LAYERS WIDTH HEADS TIME BATCH f32|bf16\n";
    return 2;
  }
  const absl::Status status = penstock::Run({argv + 1, argv + argc});
  if (!status.ok()) {
    std::cerr << "compute_train: " << status << "\n";
    return 1;
  }
  return 0;
}
