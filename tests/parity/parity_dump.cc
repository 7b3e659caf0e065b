// Trains a small GPT for some steps and writes everything another framework needs to do the same, and
// what came of it:
//
//     parity_dump DIRECTORY tied|untied
//
//   config.txt     "name value" lines
//   tokens.bin     i32 [steps, microbatches, 2 (ids, targets), batch, time]
//   initial.bin, gradients.bin, final.bin   f32, one tensor after the other: the weights before the
//                  first step, the gradients of the first step, the weights after the last step
//   tensors.txt    "name dimensions..." lines, the order of the tensors in those files
//   losses.txt     the mean loss of each step
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "base/status.h"
#include "compute/stage.h"
#include "model/families/gpt.h"

namespace penstock {
namespace {

constexpr int64_t kSteps = 20;
constexpr int64_t kMicrobatches = 2;
constexpr int64_t kSamples = 4;
constexpr int64_t kTime = 64;
constexpr double kLearningRate = 1e-3;
constexpr uint64_t kSeed = 1;
constexpr AdamWConfig kOptimizer = {0.9, 0.95, 1e-8, 0.1};

GptConfig Config(bool tied) {
  GptConfig config;
  config.layers = 3;
  config.width = 96;
  config.heads = 3;
  config.context = kTime;
  config.vocabulary = 256;
  config.tied_head = tied;
  return config;
}

// Text with structure: a token follows from the two before it and some chance.
std::vector<int32_t> MakeTokens() {
  RandomStream random(kSeed, 99);
  std::vector<int32_t> tokens;
  for (int64_t microbatch = 0; microbatch < kSteps * kMicrobatches; ++microbatch) {
    std::vector<int32_t> text(kSamples * kTime + 1);
    for (size_t i = 2; i < text.size(); ++i) {
      text[i] = static_cast<int32_t>((5 * text[i - 1] + 3 * text[i - 2] + random.Below(8)) % 40);
    }
    tokens.insert(tokens.end(), text.begin(), text.end() - 1);
    tokens.insert(tokens.end(), text.begin() + 1, text.end());
  }
  return tokens;
}

class Dump {
 public:
  Dump(std::string directory, const ModelGraph& model)
      : directory_(std::move(directory)), model_(model) {}

  absl::Status Run() {
    PENSTOCK_ASSIGN_OR_RETURN(backend_, MakeCpuBackend(1));
    StageOptions options;
    options.layers = {0, model_.size()};
    options.samples = kSamples;
    options.optimizer = kOptimizer;
    options.seed = kSeed;
    PENSTOCK_ASSIGN_OR_RETURN(stage_, Stage::Create(*backend_, model_, options));
    stage_->InitializeWeights();
    WriteConfig();
    WriteArrays("initial.bin", &Stage::LayerWeights);
    std::ofstream losses(directory_ + "/losses.txt");
    losses.precision(17);
    for (int64_t step = 0; step < kSteps; ++step) {
      double loss = 0.0;
      for (int64_t m = 0; m < kMicrobatches; ++m) {
        PENSTOCK_RETURN_IF_ERROR(Train(step, m, loss));
      }
      losses << loss / kMicrobatches << "\n";
      stage_->CombineUses();
      if (step == 0) {
        WriteArrays("gradients.bin", &Stage::LayerGradients);
      }
      const std::vector<float> scales(model_.size(), 1.0f);
      PENSTOCK_RETURN_IF_ERROR(
          stage_->Step(step + 1, {.learning_rate = kLearningRate, .gradient_scales = scales}));
    }
    WriteArrays("final.bin", &Stage::LayerWeights);
    return losses.good() ? absl::OkStatus() : absl::DataLossError("cannot write " + directory_);
  }

 private:
  absl::Status Train(int64_t step, int64_t m, double& loss) {
    const MicrobatchId id(step * kMicrobatches + m);
    constexpr int64_t kCount = kSamples * kTime;
    std::vector<Tensor> ports;
    for (const int port : stage_->ports()) {
      const std::span<const int32_t> ids(tokens_.data() + (id.value * 2 + port) * kCount, kCount);
      PENSTOCK_ASSIGN_OR_RETURN(Tensor tensor, stage_->PortToDevice(port, std::as_bytes(ids)));
      ports.push_back(std::move(tensor));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor mean_loss,
                              stage_->Forward(id, id.value * kSamples, step, Tensor(), ports));
    PENSTOCK_ASSIGN_OR_RETURN(const double value, stage_->ReadLoss(mean_loss));
    loss += value;
    PENSTOCK_RETURN_IF_ERROR(
        stage_->BackwardInput(id, step, Tensor(), 1.0f / kMicrobatches).status());
    return stage_->BackwardWeight(id);
  }

  void WriteConfig() const {
    std::ofstream config(directory_ + "/config.txt");
    const Attributes& attention = model_.nodes[1].attributes;
    config << "layers " << (model_.size() - 3) / 2 << "\nheads " << attention.integer("heads")
           << "\nbatch " << kSamples << "\ntime " << kTime << "\nsteps " << kSteps
           << "\nmicrobatches " << kMicrobatches << "\nlearning_rate " << kLearningRate
           << "\nbeta1 " << kOptimizer.beta1 << "\nbeta2 " << kOptimizer.beta2 << "\nepsilon "
           << kOptimizer.epsilon << "\nweight_decay " << kOptimizer.weight_decay << "\n";
    std::ofstream names(directory_ + "/tensors.txt");
    for (int layer = 0; layer < WrittenLayers(); ++layer) {
      for (const ParameterSpec& parameter : model_.layers[layer].parameters) {
        names << parameter.name << " " << absl::StrJoin(parameter.shape, " ") << "\n";
      }
    }
    std::ofstream tokens(directory_ + "/tokens.bin", std::ios::binary);
    tokens.write(reinterpret_cast<const char*>(tokens_.data()),
                 static_cast<std::streamsize>(tokens_.size() * sizeof(int32_t)));
  }

  // A tied head has no tensor of its own.
  int WrittenLayers() const { return model_.tied() ? model_.size() - 1 : model_.size(); }

  void WriteArrays(const char* name, std::vector<NamedArray> (Stage::*arrays_of)(int)) {
    std::ofstream file(directory_ + "/" + name, std::ios::binary);
    for (int layer = 0; layer < WrittenLayers(); ++layer) {
      for (const NamedArray& array : (stage_.get()->*arrays_of)(layer)) {
        file.write(reinterpret_cast<const char*>(array.values.data()),
                   static_cast<std::streamsize>(array.values.size() * sizeof(float)));
      }
    }
  }

  const std::string directory_;
  const ModelGraph& model_;
  const std::vector<int32_t> tokens_ = MakeTokens();
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stage> stage_;
};

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2 || (arguments[1] != "tied" && arguments[1] != "untied")) {
    std::cerr << "usage: parity_dump DIRECTORY tied|untied\n";
    return 2;
  }
  const absl::StatusOr<ModelGraph> model = BuildGpt(Config(arguments[1] == "tied"));
  absl::Status status = model.status();
  if (status.ok()) {
    status = Dump(arguments[0], *model).Run();
  }
  if (!status.ok()) {
    std::cerr << "parity_dump: " << status << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main({argv + 1, argv + argc}); }
