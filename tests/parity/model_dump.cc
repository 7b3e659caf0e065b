// Trains a job's model in one stage and writes everything another framework needs to do the same, and what came of it:
//
//     model_dump JOB.yaml DIRECTORY
//
//   config.txt     "name value" lines
//   ports.txt      "name type dimensions..." lines
//   port_NAME.bin  what each port was filled with: [steps, microbatches, samples, ...] of its type
//   initial.bin, gradients.bin, final.bin   f32, one tensor after the other: weights and buffers before the first step,
//                  the gradients of the first step, weights and buffers after the last step
//   tensors.txt    "name dimensions..." lines, the order of the tensors in initial.bin and final.bin
//   parameters.txt the same for gradients.bin
//   losses.txt     the mean loss of each step
//   logits.bin     f32, what the model predicts of the first microbatch before the first step, of a model that starts
//                  from weights of files
//
// Relative paths in the job start from its folder.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "compute/stage.h"
#include "job/hugging_face/read_config.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "worker/open_data.h"
#include "worker/port_reader.h"
#include "worker/pretrained.h"

namespace penstock {
namespace {

class ModelDump {
 public:
  ModelDump(std::string directory, const v1::JobSpec& spec, const ResolvedJob& job,
            std::string root)
      : directory_(std::move(directory)), spec_(spec), job_(job), root_(std::move(root)) {}

  absl::Status Run() {
    PENSTOCK_ASSIGN_OR_RETURN(data_, OpenData(RealFiles(), spec_, job_, root_, RunLimits()));
    PENSTOCK_ASSIGN_OR_RETURN(backend_, MakeCpuBackend(1));
    PENSTOCK_ASSIGN_OR_RETURN(stage_, Stage::Create(*backend_, job_.model,
                                                    {.layers = {0, job_.model.size()},
                                                     .samples = job_.microbatch_samples,
                                                     .step_samples = job_.batch,
                                                     .precision = job_.precision,
                                                     .optimizer = job_.optimizer,
                                                     .seed = job_.seed}));
    PENSTOCK_RETURN_IF_ERROR(LoadFirstWeights(
        {.files = RealFiles(), .root = root_, .model = spec_.model(), .job = job_},
        {0, job_.model.size()}, [] { return absl::OkStatus(); }, *stage_));
    WriteConfig();
    PENSTOCK_RETURN_IF_ERROR(WritePorts());
    WriteArrays("initial.bin", &Stage::LayerWeights, "tensors.txt");
    if (spec_.model().has_pretrained()) PENSTOCK_RETURN_IF_ERROR(WriteLogits());
    std::ofstream losses(directory_ + "/losses.txt");
    losses.precision(17);
    for (int64_t step = 0; step < job_.steps; ++step) {
      double loss = 0.0;
      for (int64_t m = 0; m < job_.microbatches; ++m) {
        PENSTOCK_RETURN_IF_ERROR(Train(step * job_.microbatches + m, step, loss));
      }
      losses << loss / static_cast<double>(job_.microbatches) << "\n";
      stage_->CombineUses();
      if (step == 0) WriteArrays("gradients.bin", &Stage::LayerGradients, "parameters.txt");
      const std::vector<float> scales(job_.model.size(), 1.0f);
      PENSTOCK_RETURN_IF_ERROR(
          stage_->Step(step + 1, {.learning_rate = job_.learning_rate.At((step + 1) * job_.batch),
                                  .gradient_scales = scales}));
    }
    WriteArrays("final.bin", &Stage::LayerWeights, "tensors.txt");
    return losses.good() ? absl::OkStatus() : absl::DataLossError("cannot write " + directory_);
  }

 private:
  absl::Status Train(int64_t microbatch, int64_t version, double& loss) {
    const MicrobatchId id(microbatch);
    PortReader reader(job_.model, job_.microbatch_samples, data_.get());
    const int64_t first_sample = microbatch * job_.microbatch_samples;
    PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports,
                              reader.Read(*stage_, Split::kTraining, first_sample));
    const MicrobatchStart start = reader.StartOf(*stage_, Split::kTraining, first_sample);
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor mean_loss,
                              stage_->Forward(id, start, version, Tensor(), ports));
    PENSTOCK_ASSIGN_OR_RETURN(const double value, stage_->ReadLoss(mean_loss));
    loss += value;
    const float scale = 1.0f / static_cast<float>(job_.microbatches);
    PENSTOCK_RETURN_IF_ERROR(stage_->BackwardInput(id, version, Tensor(), scale).status());
    return stage_->BackwardWeight(id);
  }

  absl::Status WriteLogits() {
    PortReader reader(job_.model, job_.microbatch_samples, data_.get());
    PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports,
                              reader.Read(*stage_, Split::kTraining, 0));
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<float> logits,
                              stage_->Predictions(0, Tensor(), ports));
    std::ofstream file(directory_ + "/logits.bin", std::ios::binary);
    file.write(reinterpret_cast<const char*>(logits.data()),
               static_cast<std::streamsize>(logits.size() * sizeof(float)));
    return absl::OkStatus();
  }

  void WriteConfig() const {
    std::ofstream config(directory_ + "/config.txt");
    config.precision(17);
    config << "steps " << job_.steps << "\nmicrobatches " << job_.microbatches << "\nsamples "
           << job_.microbatch_samples << "\n";
    for (int64_t step = 1; step <= job_.steps; ++step) {
      config << "rate_" << step << " " << job_.learning_rate.At(step * job_.batch) << "\n";
    }
    if (const auto* sgd = std::get_if<SgdConfig>(&job_.optimizer)) {
      config << "momentum " << sgd->momentum << "\nweight_decay " << sgd->weight_decay
             << "\nnesterov " << (sgd->nesterov ? 1 : 0) << "\n";
    }
  }

  absl::Status WritePorts() const {
    const int64_t samples = job_.steps * job_.batch;
    std::ofstream list(directory_ + "/ports.txt");
    for (size_t port = 0; port < job_.model.ports.size(); ++port) {
      const Port& spec = job_.model.ports[port];
      list << spec.name << " " << Name(spec.type.dtype) << " " << absl::StrJoin(spec.type.dims, " ")
           << "\n";
      std::vector<std::byte> values(samples * spec.type.size_bytes());
      PENSTOCK_RETURN_IF_ERROR(
          data_->Read(Split::kTraining, 0, static_cast<int>(port), absl::MakeSpan(values)));
      std::ofstream file(absl::StrCat(directory_, "/port_", spec.name, ".bin"), std::ios::binary);
      file.write(reinterpret_cast<const char*>(values.data()),
                 static_cast<std::streamsize>(values.size()));
    }
    return absl::OkStatus();
  }

  void WriteArrays(const char* name, std::vector<NamedArray> (Stage::*arrays_of)(int),
                   const char* names) {
    std::ofstream file(directory_ + "/" + name, std::ios::binary);
    std::ofstream list(directory_ + "/" + names);
    for (int layer = 0; layer < job_.model.size(); ++layer) {
      for (const NamedArray& array : (stage_.get()->*arrays_of)(layer)) {
        list << array.name << " " << absl::StrJoin(array.shape, " ") << "\n";
        file.write(reinterpret_cast<const char*>(array.values.data()),
                   static_cast<std::streamsize>(array.values.size() * sizeof(float)));
      }
    }
  }

  const std::string directory_;
  const v1::JobSpec& spec_;
  const ResolvedJob& job_;
  const std::string root_;  // of the job's paths
  std::unique_ptr<DataSource> data_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stage> stage_;
};

absl::Status Main(const std::string& path, const std::string& directory) {
  const std::string root = std::filesystem::path(path).parent_path().string();
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJobDocument(path));
  PENSTOCK_RETURN_IF_ERROR(
      ReadHuggingFaceConfig(RealFiles(), root, *document.spec.mutable_model()));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSpec spec, CompleteJob(std::move(document)));
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  return ModelDump(directory, spec, job, root).Run();
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: model_dump JOB.yaml DIRECTORY\n";
    return 2;
  }
  const absl::Status status = penstock::Main(argv[1], argv[2]);
  if (!status.ok()) std::cerr << "model_dump: " << status << "\n";
  return status.ok() ? 0 : 1;
}
