#include "compute/stage.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/tokens.h"

namespace penstock {
namespace {

std::vector<LayerSpec> SpecsOf(const Chain& chain, LayerRange range) {
  return {chain.layers.begin() + range.first, chain.layers.begin() + range.end()};
}

absl::Status CheckOptions(const Chain& chain, const StageOptions& options) {
  const LayerRange& layers = options.layers;
  if (layers.first < 0 || layers.count < 1 || layers.end() > chain.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a stage of layers %d to %d does not fit a chain of %d layers; expected at least one layer "
        "inside it",
        layers.first, layers.end() - 1, chain.size()));
  }
  if (options.batch.batch < 1 || options.batch.time < 1 || options.batch.time > chain.context) {
    return absl::InvalidArgumentError(
        absl::StrFormat("microbatches of %d samples of %d time steps; expected at least one sample "
                        "and 1 to %d time "
                        "steps",
                        options.batch.batch, options.batch.time, chain.context));
  }
  if (options.versions_max < 1 || options.microbatches_in_flight_max < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("versions_max is %d and microbatches_in_flight_max %d; expected at least 1",
                        options.versions_max, options.microbatches_in_flight_max));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> Stage::Create(Backend& backend, const Chain& chain,
                                                     const StageOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckOptions(chain, options));
  std::unique_ptr<Stage> stage(new Stage(backend, chain, options));
  PENSTOCK_RETURN_IF_ERROR(stage->Build());
  PENSTOCK_RETURN_IF_ERROR(stage->AllocateArrays());
  return stage;
}

Stage::Stage(Backend& backend, const Chain& chain, const StageOptions& options)
    : backend_(backend),
      options_(options),
      specs_(SpecsOf(chain, options.layers)),
      arena_(specs_),
      has_embedding_(std::holds_alternative<EmbeddingLayer>(specs_.front().config)),
      has_head_(std::holds_alternative<HeadLayer>(specs_.back().config)),
      boundary_shape_{options.batch.batch, options.batch.time, chain.width},
      token_shape_{options.batch.batch, options.batch.time},
      vocabulary_(chain.vocabulary) {}

Stage::~Stage() = default;

absl::Status Stage::Build() {
  for (const LayerSpec& spec : specs_) {
    absl::StatusOr<std::unique_ptr<Layer>> layer =
        backend_.MakeLayer(spec, options_.batch, options_.precision);
    if (!layer.ok()) {
      return Annotate(layer.status(), spec.name);
    }
    needs_.push_back((*layer)->tape_needs());
    layers_.push_back(*std::move(layer));
  }
  activation_bytes_ =
      ActivationBytesOf({.needs = needs_,
                         .boundary = boundary_shape_.elements() * SizeOf(DType::kF32),
                         .tokens = token_shape_.elements() * SizeOf(DType::kI32),
                         .has_embedding = has_embedding_,
                         .has_head = has_head_,
                         .recomputes = options_.recomputes});
  std::vector<ParameterSlice> slices;
  for (int layer = 0; layer < layer_count(); ++layer) {
    const absl::Span<const ParameterSlice> of_layer = arena_.slices(layer);
    slices.insert(slices.end(), of_layer.begin(), of_layer.end());
    slice_layers_.insert(slice_layers_.end(), of_layer.size(), layer);
  }
  slice_norms_.resize(slices.size());
  slice_scales_.resize(slices.size());
  PENSTOCK_ASSIGN_OR_RETURN(optimizer_, backend_.MakeOptimizer(options_.optimizer, slices));
  PENSTOCK_ASSIGN_OR_RETURN(norms_, backend_.MakeSliceNorms(slices));
  if (options_.cuda_graphs) graphs_ = backend_.MakePassGraphs();
  return absl::OkStatus();
}

absl::Status Stage::AllocateArrays() {
  const bool with_mirror = options_.precision == Precision::kBf16;
  PENSTOCK_ASSIGN_OR_RETURN(
      versions_, WeightVersions::Create(backend_.pool(), arena_.weight_count(), with_mirror,
                                        options_.versions_max));
  if (stashes_on_host()) versions_.StashOnHost(backend_);
  backend_.Fill(versions_.current().weights(), 0.0f, arena_.weight_count());
  RefreshMirror();
  PENSTOCK_ASSIGN_OR_RETURN(gradients_, Acquire(arena_.gradient_count() * SizeOf(DType::kF32)));
  backend_.Fill(gradients(), 0.0f, arena_.gradient_count());
  for (size_t slot = 0; options_.updates && slot < optimizer_->state_names().size(); ++slot) {
    PENSTOCK_ASSIGN_OR_RETURN(Buffer state, Acquire(arena_.weight_count() * SizeOf(DType::kF32)));
    auto* array = static_cast<float*>(state.data());
    backend_.Fill(array, 0.0f, arena_.weight_count());
    optimizer_arrays_.push_back(array);
    optimizer_state_.push_back(std::move(state));
  }
  PENSTOCK_ASSIGN_OR_RETURN(history_, UpdateHistory::Create(backend_, options_.history,
                                                            arena_.weight_count(), with_mirror));
  const auto keep = [this](absl::Span<const absl::string_view> names,
                           absl::Span<float* const> arrays) {
    state_names_.insert(state_names_.end(), names.begin(), names.end());
    state_arrays_.insert(state_arrays_.end(), arrays.begin(), arrays.end());
  };
  if (options_.updates) keep(optimizer_->state_names(), optimizer_arrays_);
  keep(history_.state_names(), history_.state());
  in_flight_.resize(options_.microbatches_in_flight_max);
  for (InFlight& slot : in_flight_) {
    slot.tapes.resize(layer_count());
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> Stage::Acquire(int64_t size_bytes) {
  if (size_bytes == 0) {
    return Buffer();
  }
  Buffer buffer = backend_.pool().Acquire(size_bytes);
  if (!buffer) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s has no memory for %d more bytes (%d in use); use more stages, smaller microbatches or "
        "fewer in flight",
        std::string(backend_.name()), size_bytes, backend_.pool().stats().bytes_in_use));
  }
  return buffer;
}

absl::StatusOr<Tensor> Stage::AcquireTensor(const Shape& shape) {
  PENSTOCK_ASSIGN_OR_RETURN(Buffer buffer, Acquire(shape.elements() * SizeOf(DType::kF32)));
  return Tensor{std::move(buffer), DType::kF32, shape};
}

// The buffer comes back when the others are done with it. In blocks of another size than what stays,
// timing decides only about its own addresses, and those of all else repeat (docs/adr/0012).
absl::StatusOr<Tensor> Stage::AcquireResult() {
  if (graphs_ == nullptr) return AcquireTensor(boundary_shape_);
  const int64_t size_bytes = boundary_shape_.elements() * SizeOf(DType::kF32);
  PENSTOCK_ASSIGN_OR_RETURN(Buffer buffer, Acquire(BufferPool::BlockBytes(size_bytes) + 1));
  return Tensor{std::move(buffer), DType::kF32, boundary_shape_};
}

PassContext Stage::Context(int layer, int64_t first_sample, bool training) const {
  return {options_.seed, options_.layers.first + layer, first_sample, training};
}

WeightView Stage::Weights(const WeightVersions::Version& version, int layer) const {
  return {version.weights(), version.mirror(), arena_.weight_offsets(layer).data()};
}

GradientView Stage::Gradients(int layer) const {
  return {gradients(), arena_.gradient_offsets(layer).data()};
}

absl::StatusOr<const WeightVersions::Version*> Stage::LiveVersion(int64_t number) {
  const WeightVersions::Version* version = versions_.Find(number);
  if (version == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("weight version %d is not live; the current one is %d and %d are live",
                        number, versions_.current().number, versions_.live()));
  }
  PENSTOCK_RETURN_IF_ERROR(versions_.BringBack(number));
  return version;
}

absl::StatusOr<const WeightVersions::Version*> Stage::WeightsOf(WeightRead read) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* version, LiveVersion(read.version));
  if (read.ahead == 0) return version;
  if (history_.has_average()) return &history_.Predicted(*version, read.ahead);
  return absl::FailedPreconditionError(absl::StrFormat(
      "weight version %d is to be read %d updates ahead, but weight prediction is off "
      "(history.momentum_average)",
      read.version, read.ahead));
}

absl::StatusOr<Stage::InFlight*> Stage::Begin(MicrobatchId microbatch, int64_t first_sample) {
  InFlight* free_slot = nullptr;
  for (InFlight& slot : in_flight_) {
    if (!slot.used) {
      free_slot = &slot;
    } else if (slot.microbatch == microbatch) {
      return absl::FailedPreconditionError(
          absl::StrFormat("microbatch %d is in flight already", microbatch.value));
    }
  }
  if (free_slot == nullptr) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "microbatch %d would be in flight with %d others; at most that many were announced "
        "(microbatches_in_flight_max)",
        microbatch.value, in_flight_.size()));
  }
  free_slot->used = true;
  free_slot->backward_input_done = false;
  free_slot->microbatch = microbatch;
  free_slot->first_sample = first_sample;
  return free_slot;
}

absl::StatusOr<Stage::InFlight*> Stage::Find(MicrobatchId microbatch) {
  for (InFlight& slot : in_flight_) {
    if (slot.used && slot.microbatch == microbatch) {
      return &slot;
    }
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("backward of microbatch %d without its forward", microbatch.value));
}

void Stage::Forget(InFlight& slot) {
  for (Tape& tape : slot.tapes) {
    tape = Tape();
  }
  slot.kept_input = Tensor();
  slot.used = false;
}

absl::Status Stage::CheckTensor(absl::string_view what, const Tensor& tensor, DType dtype,
                                const Shape& shape) const {
  if (tensor && tensor.dtype == dtype && tensor.shape == shape) {
    return absl::OkStatus();
  }
  const std::string got =
      tensor ? absl::StrCat(Name(tensor.dtype), " ", tensor.shape.ToString()) : "nothing";
  return absl::InvalidArgumentError(
      absl::StrFormat("%s of layers %d to %d: expected %s %s, got %s", what, options_.layers.first,
                      options_.layers.end() - 1, Name(dtype), shape.ToString(), got));
}

absl::StatusOr<Tensor> Stage::TokensToDevice(absl::string_view what,
                                             absl::Span<const int32_t> ids) {
  PENSTOCK_CHECK(static_cast<int64_t>(ids.size()) == token_shape_.elements());
  PENSTOCK_RETURN_IF_ERROR(CheckTokens(what, ids, options_.batch.time, vocabulary_));
  PENSTOCK_ASSIGN_OR_RETURN(Buffer buffer, Acquire(token_shape_.elements() * SizeOf(DType::kI32)));
  backend_.CopyToDevice(buffer.data(), ids.data(), token_shape_.elements() * SizeOf(DType::kI32));
  return Tensor{std::move(buffer), DType::kI32, token_shape_};
}

absl::Status Stage::CheckInput(const Tensor& input) const {
  return has_embedding_ ? CheckTensor("input", input, DType::kI32, token_shape_)
                        : CheckTensor("input", input, DType::kF32, boundary_shape_);
}

void Stage::BeginPass(int64_t first_sample) {
  if (graphs_ != nullptr) graphs_->SetSample(first_sample);
}

absl::Status Stage::RunPass(Pass pass, int layer, const Tape& tape, const void* weights,
                            const void* mirror, const Tensor& result,
                            absl::FunctionRef<absl::Status()> queue) {
  if (graphs_ == nullptr) return queue();
  const auto address = [](const void* data) { return reinterpret_cast<uint64_t>(data); };
  return graphs_->Run(
      {pass,
       layer,
       {address(tape.input.buffer.data()), address(tape.targets.buffer.data()),
        address(tape.grad_output.buffer.data()), address(tape.stash.data()),
        address(tape.kept.data()), address(tape.weight_stash.data()), address(weights),
        address(mirror), address(result.buffer.data()), std::bit_cast<uint32_t>(tape.loss_scale)}},
      queue);
}

absl::StatusOr<Tensor> Stage::ForwardLayer(int layer, const PassContext& context,
                                           const WeightVersions::Version& weights,
                                           const Tensor& input, const Tensor& targets, Tape& tape,
                                           Output use) {
  const bool is_last = layer == layer_count() - 1;
  const bool is_head = has_head_ && is_last;
  const bool is_result = is_last && use == Output::kReturned;
  tape.input = input;
  PENSTOCK_ASSIGN_OR_RETURN(tape.stash, Acquire(needs_[layer].stash_bytes));
  PENSTOCK_ASSIGN_OR_RETURN(tape.kept, Acquire(needs_[layer].kept_bytes));
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor output, is_head     ? AcquireTensor({1})
                                                 : is_result ? AcquireResult()
                                                             : AcquireTensor(boundary_shape_));
  if (is_head) tape.targets = targets;
  const auto queue = [&] {
    return layers_[layer]->Forward(context, Weights(weights, layer), tape, output);
  };
  const absl::Status done =
      context.training
          ? RunPass(Pass::kForward, layer, tape, weights.weights(), weights.mirror(), output, queue)
          : queue();
  tape.targets = Tensor();
  if (!done.ok()) {
    return Annotate(done, specs_[layer].name);
  }
  return output;
}

absl::StatusOr<Tensor> Stage::Forward(MicrobatchId microbatch, int64_t first_sample,
                                      WeightRead read, const Tensor& input, const Tensor& targets) {
  PENSTOCK_RETURN_IF_ERROR(CheckInput(input));
  if (has_head_) {
    PENSTOCK_RETURN_IF_ERROR(CheckTensor("targets", targets, DType::kI32, token_shape_));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, WeightsOf(read));
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Begin(microbatch, first_sample));
  slot->version = read.version;
  BeginPass(first_sample);
  if (!options_.recomputes) {
    return ForwardIntoTapes(*slot, *weights, input, targets, Output::kReturned);
  }
  absl::StatusOr<Tensor> output =
      ForwardWithoutTapes(layer_count(), first_sample, /*training=*/true, *weights, input, targets);
  if (output.ok()) {
    slot->kept_input = input;
  } else {
    Forget(*slot);
  }
  return output;
}

absl::StatusOr<Tensor> Stage::TakeInput(MicrobatchId microbatch) {
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Find(microbatch));
  if (!slot->kept_input) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "microbatch %d kept no input for another stage to do its forward again from",
        microbatch.value));
  }
  Tensor input = std::exchange(slot->kept_input, Tensor());
  Forget(*slot);
  return input;
}

absl::Status Stage::PutInput(MicrobatchId microbatch, int64_t first_sample, const Tensor& input) {
  PENSTOCK_RETURN_IF_ERROR(CheckInput(input));
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Begin(microbatch, first_sample));
  slot->kept_input = input;
  return absl::OkStatus();
}

absl::Status Stage::Recompute(MicrobatchId microbatch, WeightRead read, const Tensor& targets) {
  if (has_head_) {
    PENSTOCK_RETURN_IF_ERROR(CheckTensor("targets", targets, DType::kI32, token_shape_));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, WeightsOf(read));
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Find(microbatch));
  if (!slot->kept_input) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "microbatch %d kept no input to do its forward again from", microbatch.value));
  }
  slot->version = read.version;
  BeginPass(slot->first_sample);
  const Tensor input = std::exchange(slot->kept_input, Tensor());
  return ForwardIntoTapes(*slot, *weights, input, targets, Output::kDropped).status();
}

absl::StatusOr<Tensor> Stage::ForwardIntoTapes(InFlight& slot,
                                               const WeightVersions::Version& weights,
                                               const Tensor& input, const Tensor& targets,
                                               Output use) {
  Tensor activation = input;
  for (int layer = 0; layer < layer_count(); ++layer) {
    absl::StatusOr<Tensor> output =
        ForwardLayer(layer, Context(layer, slot.first_sample, /*training=*/true), weights,
                     activation, targets, slot.tapes[layer], use);
    if (!output.ok()) {
      Forget(slot);
      return output.status();
    }
    activation = *std::move(output);
  }
  return activation;
}

absl::StatusOr<Tensor> Stage::ForwardWithoutTapes(int layers, int64_t first_sample, bool training,
                                                  const WeightVersions::Version& weights,
                                                  const Tensor& input, const Tensor& targets) {
  Tensor activation = input;
  for (int layer = 0; layer < layers; ++layer) {
    Tape tape;  // dropped after each layer
    PENSTOCK_ASSIGN_OR_RETURN(
        activation, ForwardLayer(layer, Context(layer, first_sample, training), weights, activation,
                                 targets, tape));
  }
  return activation;
}

absl::StatusOr<Tensor> Stage::Evaluate(int64_t version, const Tensor& input,
                                       const Tensor& targets) {
  PENSTOCK_RETURN_IF_ERROR(CheckInput(input));
  if (has_head_) {
    PENSTOCK_RETURN_IF_ERROR(CheckTensor("targets", targets, DType::kI32, token_shape_));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, LiveVersion(version));
  return ForwardWithoutTapes(layer_count(), 0, /*training=*/false, *weights, input, targets);
}

absl::StatusOr<double> Stage::ReadLoss(const Tensor& loss) {
  float value = 0.0f;
  backend_.CopyToHost(&value, loss.data<float>(), sizeof(value));
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  return value;
}

absl::StatusOr<std::vector<float>> Stage::NextTokenLogits(int64_t version, const Tensor& input,
                                                          int64_t position) {
  PENSTOCK_CHECK(has_head_);
  PENSTOCK_RETURN_IF_ERROR(CheckInput(input));
  if (position < 0 || position >= options_.batch.time) {
    return absl::InvalidArgumentError(
        absl::StrFormat("logits at time step %d of %d; expected 0 to %d", position,
                        options_.batch.time, options_.batch.time - 1));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, LiveVersion(version));
  const int head = layer_count() - 1;
  PENSTOCK_ASSIGN_OR_RETURN(Tensor activation, ForwardWithoutTapes(head, 0, /*training=*/false,
                                                                   *weights, input, Tensor()));
  Tape tape;
  tape.input = activation;
  PENSTOCK_ASSIGN_OR_RETURN(tape.kept, Acquire(needs_[head].kept_bytes));
  PENSTOCK_ASSIGN_OR_RETURN(
      const Tensor output, AcquireTensor({options_.batch.batch, options_.batch.time, vocabulary_}));
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(layers_[head]->Logits(Weights(*weights, head), tape, output), specs_[head].name));
  std::vector<float> logits(options_.batch.batch * vocabulary_);
  for (int64_t sample = 0; sample < options_.batch.batch; ++sample) {
    const int64_t row = sample * options_.batch.time + position;
    backend_.CopyToHost(&logits[sample * vocabulary_], output.data<float>() + row * vocabulary_,
                        vocabulary_ * SizeOf(DType::kF32));
  }
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  return logits;
}

absl::StatusOr<Tensor> Stage::BackwardLayer(int layer, const PassContext& context,
                                            const WeightVersions::Version& weights,
                                            const Tensor& grad_output, Tape& tape) {
  const TapeNeeds& needs = needs_[layer];
  PENSTOCK_ASSIGN_OR_RETURN(tape.weight_stash, Acquire(needs.weight_stash_bytes));
  tape.grad_output = grad_output;
  Tensor grad_input;
  if (!(has_embedding_ && layer == 0)) {
    PENSTOCK_ASSIGN_OR_RETURN(grad_input,
                              layer == 0 ? AcquireResult() : AcquireTensor(boundary_shape_));
  }
  PENSTOCK_RETURN_IF_ERROR(RunPass(
      Pass::kBackwardInput, layer, tape, weights.weights(), weights.mirror(), grad_input, [&] {
        return layers_[layer]->BackwardInput(context, Weights(weights, layer), tape, grad_input);
      }));
  tape.stash = Buffer();
  if (!needs.input_for_weight) {
    tape.input = Tensor();
  }
  if (!needs.grad_output_for_weight) {
    tape.grad_output = Tensor();
  }
  return grad_input;
}

absl::StatusOr<Tensor> Stage::BackwardInput(MicrobatchId microbatch, WeightRead read,
                                            const Tensor& grad_output, float loss_scale) {
  if (!has_head_) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckTensor("gradient of the output", grad_output, DType::kF32, boundary_shape_));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, WeightsOf(read));
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Find(microbatch));
  if (slot->backward_input_done) {
    return absl::FailedPreconditionError(
        absl::StrFormat("second backward of the input for microbatch %d", microbatch.value));
  }
  if (slot->kept_input) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "backward of microbatch %d before its forward was done again", microbatch.value));
  }
  BeginPass(slot->first_sample);
  Tensor gradient = grad_output;
  for (int layer = layer_count() - 1; layer >= 0; --layer) {
    const PassContext context = Context(layer, slot->first_sample, /*training=*/true);
    Tape& tape = slot->tapes[layer];
    tape.loss_scale = loss_scale;
    PENSTOCK_ASSIGN_OR_RETURN(gradient, BackwardLayer(layer, context, *weights, gradient, tape));
  }
  slot->backward_input_done = true;
  PENSTOCK_RETURN_IF_ERROR(PrepareNextBackward(read.version));
  return gradient;
}

absl::Status Stage::PrepareNextBackward(int64_t version) {
  if (!stashes_on_host()) return absl::OkStatus();
  const InFlight* next = nullptr;
  bool read_again = false;
  for (const InFlight& slot : in_flight_) {
    if (!slot.used || slot.backward_input_done) continue;
    read_again |= versions_.Find(slot.version) == versions_.Find(version);
    if (next == nullptr || slot.microbatch < next->microbatch) next = &slot;
  }
  if (!read_again) versions_.Leave(version);
  return next == nullptr ? absl::OkStatus() : versions_.StartBringingBack(next->version);
}

absl::Status Stage::BackwardWeight(MicrobatchId microbatch) {
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Find(microbatch));
  if (!slot->backward_input_done) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "backward of the weights for microbatch %d before that of its input", microbatch.value));
  }
  BeginPass(slot->first_sample);
  for (int layer = layer_count() - 1; layer >= 0; --layer) {
    const PassContext context = Context(layer, slot->first_sample, /*training=*/true);
    Tape& tape = slot->tapes[layer];
    PENSTOCK_RETURN_IF_ERROR(
        RunPass(Pass::kBackwardWeight, layer, tape, gradients(), nullptr, Tensor(),
                [&] { return layers_[layer]->BackwardWeight(context, Gradients(layer), tape); }));
    tape = Tape();
  }
  slot->used = false;
  return absl::OkStatus();
}

}  // namespace penstock
