// One worker with one thread that trains a job's model in a single stage, for comparisons with another framework:
//
//     compute_train JOB.yaml [DEVICE]
//
// DEVICE is cpu (the default), cuda:N or auto. Reads a number of steps from each line of standard input, does that many, and answers with one line:
// the seconds they took and the loss of the last one. A step is everything: data, forward and backward of each
// microbatch, clipping, the optimizer's update. Paths in the job start from the working directory.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/clip.h"
#include "compute/device.h"
#include "compute/stage.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "worker/open_data.h"
#include "worker/port_reader.h"
#include "worker/update_rule.h"
#include "worker/valid_targets.h"

namespace penstock {
namespace {

class Trainer {
 public:
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(v1::JobSpec spec, const Device& device) {
    PENSTOCK_ASSIGN_OR_RETURN(ResolvedJob job, ResolveJob(spec));
    std::unique_ptr<Trainer> trainer(new Trainer(std::move(job)));
    const ResolvedJob& own = trainer->job_;
    PENSTOCK_RETURN_IF_ERROR(CheckJobData(RealFiles(), ".", own, spec));
    PENSTOCK_ASSIGN_OR_RETURN(trainer->data_, OpenData(RealFiles(), spec, own, ".", {}));
    PENSTOCK_ASSIGN_OR_RETURN(trainer->backend_, MakeBackendOn(device, 1, Repeatability::kFast));
    PENSTOCK_ASSIGN_OR_RETURN(trainer->stage_, Stage::Create(*trainer->backend_, own.model,
                                                             {.layers = {0, own.model.size()},
                                                              .samples = own.microbatch_samples,
                                                              .step_samples = own.batch,
                                                              .precision = own.precision,
                                                              .optimizer = own.optimizer,
                                                              .seed = own.seed}));
    trainer->stage_->InitializeWeights();
    trainer->scales_.resize(own.model.size());
    trainer->norms_.resize(own.model.size());
    trainer->reader_ =
        std::make_unique<PortReader>(own.model, own.microbatch_samples, trainer->data_.get());
    trainer->valid_targets_.emplace(own, trainer->data_.get());
    return trainer;
  }

  // Returns the mean of the microbatches' losses, for which a device is waited once.
  absl::StatusOr<double> Step() {
    losses_.clear();
    for (int64_t m = 0; m < job_.microbatches; ++m) {
      PENSTOCK_RETURN_IF_ERROR(Microbatch(step_ * job_.microbatches + m));
    }
    stage_->CombineUses();
    PENSTOCK_RETURN_IF_ERROR(stage_->LayerSquaredNorms(absl::MakeSpan(norms_)));
    ClipFactors(job_.clip, norms_, CombinedNorm(norms_), absl::MakeSpan(scales_));
    ++step_;
    const double rate = job_.learning_rate.At(step_ * job_.batch);
    PENSTOCK_RETURN_IF_ERROR(
        stage_->Step(step_, {.learning_rate = rate, .gradient_scales = scales_}));
    double sum = 0.0;
    for (const Tensor& mean_loss : losses_) {
      PENSTOCK_ASSIGN_OR_RETURN(const double loss, stage_->ReadLoss(mean_loss));
      sum += loss;
    }
    return sum / static_cast<double>(job_.microbatches);
  }

 private:
  explicit Trainer(ResolvedJob job) : job_(std::move(job)) {}

  absl::Status Microbatch(int64_t microbatch) {
    const MicrobatchId id(microbatch);
    const int64_t first = FirstSample(job_, microbatch);
    PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports,
                              reader_->Read(*stage_, Split::kTraining, first));
    PENSTOCK_ASSIGN_OR_RETURN(
        Tensor mean_loss, stage_->Forward(id, reader_->StartOf(*stage_, Split::kTraining, first),
                                          step_, Tensor(), ports));
    reader_->Forget();
    losses_.push_back(std::move(mean_loss));
    PENSTOCK_ASSIGN_OR_RETURN(const float scale, valid_targets_->LossScale(microbatch));
    PENSTOCK_RETURN_IF_ERROR(stage_->BackwardInput(id, step_, Tensor(), scale).status());
    return stage_->BackwardWeight(id);
  }

  const ResolvedJob job_;
  std::unique_ptr<DataSource> data_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<PortReader> reader_;
  std::optional<ValidTargets> valid_targets_;
  std::vector<float> scales_;
  std::vector<double> norms_;
  std::vector<Tensor> losses_;  // of the step's microbatches
  int64_t step_ = 0;
};

absl::Status Run(const std::string& path, const char* device_name) {
  PENSTOCK_ASSIGN_OR_RETURN(const Device device, ParseDevice(device_name));
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec spec, ParseJobYaml(text.str(), path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                            Trainer::Create(std::move(spec), device));
  for (int64_t steps = 0; std::cin >> steps;) {
    const auto start = std::chrono::steady_clock::now();
    double loss = 0.0;
    for (int64_t step = 0; step < steps; ++step) {
      PENSTOCK_ASSIGN_OR_RETURN(loss, trainer->Step());
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
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: compute_train JOB.yaml [DEVICE]\n";
    return 2;
  }
  const absl::Status status = penstock::Run(argv[1], argc == 3 ? argv[2] : "cpu");
  if (!status.ok()) {
    std::cerr << "compute_train: " << status << "\n";
    return 1;
  }
  return 0;
}
