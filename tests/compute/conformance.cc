#include "tests/compute/conformance.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "tests/support/status_matchers.h"

namespace penstock {

void BackendConformance::SetUp() {
  absl::StatusOr<std::unique_ptr<Backend>> made = GetParam().make();
  if (absl::IsUnavailable(made.status())) {
    GTEST_SKIP() << "not on this machine: " << made.status().message();
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(backend_, std::move(made));
}

GptConfig TinyGpt() {
  GptConfig config;
  config.layers = 2;
  config.width = 36;
  config.heads = 3;
  config.context = 20;
  config.vocabulary = 29;
  return config;
}

Node MakeNode(absl::string_view op, const Attributes& attributes, std::vector<ValueType> inputs) {
  Node node;
  node.name = std::string(op);
  node.op = *FindOp(op);
  node.attributes = *Complete(node.op->attributes, attributes);
  OpResult result = *node.op->infer({node.attributes, inputs});
  node.output = std::move(result.output);
  node.parameters = std::move(result.parameters);
  node.buffers = std::move(result.buffers);
  for (size_t i = 0; i < inputs.size(); ++i) node.inputs.push_back(static_cast<int>(i));
  node.needs_gradient = true;
  return node;
}

Tokens TokensOf(int64_t microbatch, int64_t count, int64_t vocabulary) {
  RandomStream random(11, microbatch);
  Tokens tokens;
  auto token = static_cast<int32_t>(random.Below(vocabulary));
  for (int64_t row = 0; row < count; ++row) {
    tokens.ids.push_back(token);
    // Mostly predictable, so that training has something to learn.
    token = static_cast<int32_t>((3 * token + 1 + random.Below(3)) % vocabulary);
    tokens.targets.push_back(token);
  }
  return tokens;
}

std::vector<std::byte> PortBytes(const Port& port, int64_t microbatch, int64_t samples) {
  const int64_t count = samples * port.type.elements();
  std::vector<std::byte> bytes(samples * port.type.size_bytes());
  if (port.type.dtype == DType::kI32) {
    const Tokens tokens = TokensOf(microbatch, count, port.ids);
    const std::vector<int32_t>& ids = port.name == "targets" ? tokens.targets : tokens.ids;
    std::memcpy(bytes.data(), ids.data(), bytes.size());
    return bytes;
  }
  PENSTOCK_CHECK(port.type.dtype == DType::kF32);
  RandomStream random(12, microbatch);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.Normal());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<Tensor> PortsOf(Stage& stage, const ModelGraph& model, int64_t microbatch,
                            int64_t samples) {
  std::vector<Tensor> ports;
  for (const int port : stage.ports()) {
    ports.push_back(*stage.PortToDevice(port, PortBytes(model.ports[port], microbatch, samples)));
  }
  return ports;
}

Pipeline::Pipeline(Backend& backend, const ModelGraph& model, Options options)
    : backend_(backend), model_(model), options_(std::move(options)) {
  int first = 0;
  for (const int count : options_.layers_per_stage) {
    StageOptions stage;
    stage.layers = {first, count};
    stage.samples = options_.samples;
    stage.precision = options_.precision;
    stage.rounding = options_.rounding;
    stage.cuda_graphs = options_.cuda_graphs;
    stage.recomputes = options_.recomputes;
    stage.optimizer = options_.optimizer;
    stage.seed = options_.seed;
    stage.microbatches_in_flight_max = options_.microbatches;
    absl::StatusOr<std::unique_ptr<Stage>> made = Stage::Create(backend, model_, stage);
    if (!made.ok()) ADD_FAILURE() << made.status();
    PENSTOCK_CHECK(made.ok());
    stages_.push_back(*std::move(made));
    stages_.back()->InitializeWeights();
    first += count;
  }
  PENSTOCK_CHECK(first == model_.size());
}

bool Pipeline::TryForward(int s) {
  Progress& progress = progress_[s];
  const int64_t m = progress.forwards;
  // 1F1B: as many forwards ahead of the backwards as there are stages behind, and this one.
  const int64_t ahead_max = stages() - s;
  if (m == options_.microbatches || m - progress.input_backwards >= ahead_max ||
      (s > 0 && !inputs_[s][m])) {
    return false;
  }
  const int64_t id = steps_ * options_.microbatches + m;
  absl::StatusOr<Tensor> output =
      stage(s).Forward(MicrobatchId(id), id * options_.samples, steps_, std::move(inputs_[s][m]),
                       PortsOf(stage(s), model_, id, options_.samples));
  PENSTOCK_CHECK(output.ok());
  inputs_[s][m] = Tensor();
  if (stage(s).is_last()) {
    loss_ += *stage(s).ReadLoss(*output) / static_cast<double>(options_.microbatches);
  } else {
    inputs_[s + 1][m] = *output;
  }
  ++progress.forwards;
  return true;
}

bool Pipeline::TryBackwardInput(int s) {
  Progress& progress = progress_[s];
  const int64_t m = progress.input_backwards;
  const bool gets_gradient = stage(s).grad_output_shape().rank > 0;
  if (m == progress.forwards || (gets_gradient && !gradients_[s][m])) {
    return false;
  }
  const MicrobatchId id(steps_ * options_.microbatches + m);
  if (options_.recomputes) {
    PENSTOCK_CHECK(
        stage(s).Recompute(id, steps_, PortsOf(stage(s), model_, id.value, options_.samples)).ok());
  }
  absl::StatusOr<Tensor> gradient = stage(s).BackwardInput(
      id, steps_, std::move(gradients_[s][m]), 1.0f / static_cast<float>(options_.microbatches));
  PENSTOCK_CHECK(gradient.ok());
  gradients_[s][m] = Tensor();
  if (s > 0) {
    gradients_[s - 1][m] = *gradient;
  }
  ++progress.input_backwards;
  return true;
}

bool Pipeline::TryBackwardWeight(int s) {
  Progress& progress = progress_[s];
  const int64_t m = progress.weight_backwards;
  const bool all_back = progress.input_backwards == options_.microbatches;
  if (m == progress.input_backwards ||
      (!all_back && m + options_.weights_delay >= progress.input_backwards)) {
    return false;
  }
  PENSTOCK_CHECK(stage(s).BackwardWeight(MicrobatchId(steps_ * options_.microbatches + m)).ok());
  ++progress.weight_backwards;
  return true;
}

double Pipeline::Accumulate() {
  loss_ = 0.0;
  progress_.assign(stages(), {});
  inputs_.assign(stages(), std::vector<Tensor>(options_.microbatches));
  gradients_.assign(stages(), std::vector<Tensor>(options_.microbatches));
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < stages(); ++s) {
      moved |= TryBackwardWeight(s) || TryBackwardInput(s) || TryForward(s);
    }
  }
  CombineTied();
  return loss_;
}

void Pipeline::CombineTied() {
  for (const auto& stage : stages_) stage->CombineUses();
  const auto stage_of = [this](int layer) {
    int stage = 0;
    for (; layer >= options_.layers_per_stage[stage]; ++stage) {
      layer -= options_.layers_per_stage[stage];
    }
    return stage;
  };
  for (size_t t = 0; t < model_.ties.size(); ++t) {
    if (model_.ties[t].frozen()) continue;
    const int tie = static_cast<int>(t);
    std::set<int> users;
    for (const int layer : model_.ties[t].uses) users.insert(stage_of(layer));
    if (users.size() == 1) continue;
    Tensor later;
    for (auto user = users.rbegin(); user != users.rend(); ++user) {
      stage(*user).CombineTied(tie, later);
      // A copy, as the network would make.
      const Tensor sum = stage(*user).TiedGradient(tie);
      std::vector<float> values(sum.shape.elements());
      backend_.CopyToHost(values.data(), sum.data<float>(), sum.size_bytes());
      later = backend_.pool().AcquireTensor(DType::kF32, sum.shape);
      backend_.CopyToDevice(later.buffer.data(), values.data(), later.size_bytes());
    }
    for (const int user : users) {
      backend_.CopyOnDevice(stage(user).TiedGradient(tie).data<void>(), later.data<void>(),
                            later.size_bytes());
    }
  }
}

std::vector<double> Pipeline::SquaredNorms() {
  std::vector<double> norms;
  for (size_t s = 0; s < stages_.size(); ++s) {
    std::vector<double> of_stage(options_.layers_per_stage[s]);
    PENSTOCK_CHECK(stages_[s]->LayerSquaredNorms(absl::MakeSpan(of_stage)).ok());
    norms.insert(norms.end(), of_stage.begin(), of_stage.end());
  }
  return norms;
}

void Pipeline::Update() {
  const std::vector<double> norms = SquaredNorms();
  const double norm = CombinedNorm(norms);
  for (int s = 0; s < stages(); ++s) {
    std::vector<float> factors(norms.size());
    ClipFactors(options_.clip, norms, norm, absl::MakeSpan(factors));
    Stage::StepOptions step;
    step.learning_rate = options_.learning_rate;
    step.gradient_scales = factors;
    PENSTOCK_CHECK(stage(s).Step(steps_ + 1, step).ok());
  }
  ++steps_;
}

double Pipeline::Step() {
  const double loss = Accumulate();
  Update();
  return loss;
}

std::vector<std::string> Pipeline::Digests() {
  std::vector<std::string> digests;
  for (const auto& stage : stages_) {
    const std::vector<std::string> of_stage = stage->LayerDigests();
    digests.insert(digests.end(), of_stage.begin(), of_stage.end());
  }
  return digests;
}

std::vector<NamedArray> Pipeline::Gradients() {
  std::vector<NamedArray> all;
  for (int s = 0; s < stages(); ++s) {
    for (int layer = 0; layer < options_.layers_per_stage[s]; ++layer) {
      std::vector<NamedArray> arrays = stage(s).LayerGradients(layer);
      std::move(arrays.begin(), arrays.end(), std::back_inserter(all));
    }
  }
  return all;
}

std::vector<NamedArray> Pipeline::Weights() {
  std::vector<NamedArray> all;
  for (int s = 0; s < stages(); ++s) {
    for (int layer = 0; layer < options_.layers_per_stage[s]; ++layer) {
      std::vector<NamedArray> arrays = stage(s).LayerWeights(layer);
      std::move(arrays.begin(), arrays.end(), std::back_inserter(all));
    }
  }
  return all;
}

}  // namespace penstock
