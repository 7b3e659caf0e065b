#include "compute/stage.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/array_bytes.h"
#include "compute/port_ids.h"

namespace penstock {
namespace {

absl::Status CheckOptions(const ModelGraph& model, const StageOptions& options) {
  const LayerRange& layers = options.layers;
  if (layers.first < 0 || layers.count < 1 || layers.end() > model.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a stage of layers %d to %d does not fit a model of %d layers; expected at least one layer "
        "inside it",
        layers.first, layers.end() - 1, model.size()));
  }
  if (options.samples < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "microbatches of %d samples; expected at least one sample", options.samples));
  }
  if (options.step_samples < 0 || options.step_samples % options.samples != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "steps of %d samples; expected 0, or a multiple of the %d samples of a microbatch",
        options.step_samples, options.samples));
  }
  if (options.borrows_weights && (options.updates || !options.drops_gradients)) {
    return absl::InvalidArgumentError(
        "a stage that borrows its weights makes no updates, and drops its gradients");
  }
  if (options.stores_state && (options.borrows_weights || !options.drops_gradients ||
                               options.keeps_average || options.history.any())) {
    return absl::InvalidArgumentError(
        "a stage that stores its weights and state elsewhere drops its gradients, borrows no "
        "weights, and keeps no average and no history");
  }
  if (options.versions_max < 1 || options.microbatches_in_flight_max < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("versions_max is %d and microbatches_in_flight_max %d; expected at least 1",
                        options.versions_max, options.microbatches_in_flight_max));
  }
  return absl::OkStatus();
}

std::vector<std::optional<int32_t>> IgnoredInPorts(const ModelGraph& model) {
  std::vector<std::optional<int32_t>> ignored;
  for (size_t port = 0; port < model.ports.size(); ++port) {
    ignored.push_back(model.IgnoredIn(static_cast<int>(port)));
  }
  return ignored;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> Stage::Create(Backend& backend, const ModelGraph& model,
                                                     const StageOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckOptions(model, options));
  std::unique_ptr<Stage> stage(new Stage(backend, model, options));
  PENSTOCK_RETURN_IF_ERROR(stage->Build());
  PENSTOCK_RETURN_IF_ERROR(stage->AllocateArrays());
  return stage;
}

Stage::Stage(Backend& backend, const ModelGraph& model, const StageOptions& options)
    : backend_(backend),
      options_(options),
      model_(model),
      ignores_targets_(model.loss().ignored.has_value()),
      ignored_in_ports_(IgnoredInPorts(model)),
      arena_(model, options.layers),
      buffer_layout_(LayOutBuffers(model, options.layers, options.step_samples)),
      is_last_(options.layers.end() == model.size()) {}

Stage::~Stage() = default;

// The map that scores classes stays in bf16: the loss magnifies what rounding does to scores.
Precision Stage::PrecisionOfNode(int n) const {
  const Node& loss = model_.nodes.back();
  const bool scores = model_.loss().classes > 0 && loss.inputs.front() == model_.ValueOf(n);
  return scores && options_.precision == Precision::kFp8 ? Precision::kBf16 : options_.precision;
}

absl::Status Stage::Build() {
  for (int layer = 0; layer < layer_count(); ++layer) {
    const LayerSpec& spec = layer_spec(layer);
    int parameter = 0;
    for (int n = spec.first_node; n < spec.end_node(); ++n) {
      const Node& node = model_.nodes[n];
      absl::StatusOr<std::unique_ptr<OpKernels>> kernels = backend_.MakeKernels(
          {.node = node, .inputs = model_.InputTypes(node), .samples = options_.samples},
          PrecisionOfNode(n));
      if (!kernels.ok()) return Annotate(kernels.status(), node.name);
      needs_.push_back((*kernels)->tape_needs());
      if (const absl::string_view why = (*kernels)->fallback(); !why.empty()) {
        if (fallbacks_.nodes++ == 0) fallbacks_.first = absl::StrCat(node.name, ": ", why);
      }
      kernels_.push_back(*std::move(kernels));
      first_parameters_.push_back(parameter);
      layer_of_node_.push_back(layer);
      parameter += static_cast<int>(node.parameters.size());
    }
  }
  plan_ = MakePassPlan(model_, options_.layers, options_.samples, needs_,
                       CrossingType(options_.precision), options_.ends);
  activation_bytes_ = ActivationBytesOf(plan_, options_.recomputes, is_last_);
  std::vector<ParameterSlice> slices;
  for (int layer = 0; layer < layer_count(); ++layer) {
    const absl::Span<const ParameterSlice> of_layer = arena_.slices(layer);
    slices.insert(slices.end(), of_layer.begin(), of_layer.end());
    const absl::Span<const int> owners = arena_.slice_owners(layer);
    slice_owners_.insert(slice_owners_.end(), owners.begin(), owners.end());
  }
  slice_norms_.resize(slices.size());
  slice_scales_.resize(slices.size());
  if (!slices.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(optimizer_, backend_.MakeOptimizer(options_.optimizer, slices));
    PENSTOCK_ASSIGN_OR_RETURN(norms_, backend_.MakeSliceNorms(slices));
  }
  if (options_.cuda_graphs) graphs_ = backend_.MakePassGraphs();
  return absl::OkStatus();
}

absl::Status Stage::AllocateArrays() {
  const bool with_mirror = HasMirror(options_.precision);
  PENSTOCK_ASSIGN_OR_RETURN(
      versions_, WeightVersions::Create(backend_.pool(), arena_.weight_count(), with_mirror,
                                        options_.versions_max,
                                        !options_.borrows_weights && !options_.stores_state));
  if (stashes_on_host()) versions_.StashOnHost(backend_);
  if (versions_.has_arrays()) {
    backend_.Fill(versions_.current().weights(), 0.0f, arena_.weight_count());
  }
  PENSTOCK_ASSIGN_OR_RETURN(frozen_.f32, Acquire(arena_.frozen_count() * SizeOf(DType::kF32)));
  if (with_mirror) {
    PENSTOCK_ASSIGN_OR_RETURN(frozen_.bf16, Acquire(arena_.frozen_count() * SizeOf(DType::kBf16)));
  }
  if (frozen_.f32) {
    backend_.Fill(static_cast<float*>(frozen_.f32.data()), 0.0f, arena_.frozen_count());
  }
  RefreshMirror();
  RefreshFrozenMirror();
  if (!options_.drops_gradients) PENSTOCK_RETURN_IF_ERROR(EnsureGradients());
  const absl::Span<const absl::string_view> states = StateNamesOf(options_.optimizer);
  const bool has_state = options_.updates && !options_.stores_state;
  for (size_t slot = 0; has_state && slot < states.size(); ++slot) {
    PENSTOCK_ASSIGN_OR_RETURN(Buffer state, Acquire(arena_.trained_count() * SizeOf(DType::kF32)));
    auto* array = static_cast<float*>(state.data());
    backend_.Fill(array, 0.0f, arena_.trained_count());
    optimizer_arrays_.push_back(array);
    optimizer_state_.push_back(std::move(state));
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      history_, UpdateHistory::Create(backend_, options_.history, arena_.trained_count(),
                                      arena_.weight_count(), with_mirror));
  if (options_.keeps_average && options_.updates) {
    PENSTOCK_ASSIGN_OR_RETURN(average_,
                              WeightAverage::Create(backend_, arena_.weight_count(),
                                                    with_mirror && options_.evaluates_average));
    average_.Begin(versions_.current());
  }
  const auto keep = [this](absl::Span<const absl::string_view> names,
                           absl::Span<float* const> arrays) {
    state_names_.insert(state_names_.end(), names.begin(), names.end());
    state_arrays_.insert(state_arrays_.end(), arrays.begin(), arrays.end());
  };
  optimizer_arrays_.resize(options_.updates ? states.size() : 0);
  keep(options_.updates ? states : absl::Span<const absl::string_view>(), optimizer_arrays_);
  keep(history_.state_names(), history_.state());
  if (average_.exists()) {
    state_names_.push_back(kWeightAverageState);
    state_arrays_.push_back(average_.array());
  }
  PENSTOCK_RETURN_IF_ERROR(AllocateBuffers());
  in_flight_.resize(options_.microbatches_in_flight_max);
  for (InFlight& slot : in_flight_) {
    slot.slots.resize(plan_.slots.size());
  }
  passing_slots_.resize(plan_.slots.size());
  return absl::OkStatus();
}

absl::Status Stage::AllocateBuffers() {
  PENSTOCK_ASSIGN_OR_RETURN(buffers_, Acquire(buffer_layout_.count * SizeOf(DType::kF32)));
  PENSTOCK_ASSIGN_OR_RETURN(evaluation_carries_,
                            Acquire(buffer_layout_.carried() * SizeOf(DType::kF32)));
  const auto clear = [this](const Buffer& buffer, int64_t count) {
    if (count > 0) backend_.Fill(static_cast<float*>(buffer.data()), 0.0f, count);
  };
  clear(buffers_, buffer_layout_.count);
  clear(evaluation_carries_, buffer_layout_.carried());
  if (carries()) last_samples_.resize(options_.step_samples / options_.samples);
  ResetBuffers();
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

// What crosses comes back when the others are done with it. In blocks of another size than what stays,
// timing decides only about its own addresses, and those of all else repeat (docs/adr/0012).
absl::StatusOr<Tensor> Stage::AcquireSlot(const PassPlan::Slot& slot) {
  const int64_t size_bytes = slot.size_bytes();
  const bool apart = graphs_ != nullptr && slot.crosses;
  PENSTOCK_ASSIGN_OR_RETURN(Buffer buffer,
                            Acquire(apart ? BufferPool::BlockBytes(size_bytes) + 1 : size_bytes));
  return Tensor{std::move(buffer), slot.dtype, slot.shape};
}

WeightView Stage::Weights(const WeightVersions::Version& version, int n) const {
  const int layer = layer_of_node_[n];
  const int64_t* const offsets = arena_.weight_offsets(layer).data() + first_parameters_[n];
  const bool apart = !node(n).parameters.empty() && arena_.is_apart(layer, first_parameters_[n]);
  if (!apart) return {version.weights(), version.mirror(), offsets};
  return {static_cast<const float*>(frozen_.f32.data()),
          static_cast<const uint16_t*>(frozen_.bf16.data()), offsets};
}

GradientView Stage::Gradients(int node) const {
  return {gradients(),
          arena_.gradient_offsets(layer_of_node_[node]).data() + first_parameters_[node]};
}

absl::StatusOr<const WeightVersions::Version*> Stage::LiveVersion(int64_t number) {
  const WeightVersions::Version* version = versions_.Find(number);
  if (version == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("weight version %d is not live; the current one is %d and %d are live",
                        number, versions_.current().number, versions_.live()));
  }
  if (!versions_.has_arrays() && (options_.borrows_weights || options_.stores_state)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "layers %d to %d have no weights here", options_.layers.first, options_.layers.end() - 1));
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
  free_slot->kept_input = false;
  free_slot->where = InFlight::Where::kDevice;
  free_slot->blocks.clear();
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
  for (Tensor& tensor : slot.slots) tensor = Tensor();
  slot.used = false;
}

absl::StatusOr<Stage::InFlight*> Stage::FindAt(MicrobatchId microbatch, InFlight::Where where,
                                               absl::string_view asked) {
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Find(microbatch));
  if (slot->where == where) return slot;
  constexpr absl::string_view kPlaces[] = {"on the device", "on its way to the host", "on the host",
                                           "on its way back"};
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s of microbatch %d, whose stash is %s; expected it to be %s", asked, microbatch.value,
      kPlaces[static_cast<int>(slot->where)], kPlaces[static_cast<int>(where)]));
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

absl::StatusOr<Tensor> Stage::PortToDevice(int port, absl::Span<const std::byte> values) {
  const Port& spec = model_.ports[port];
  const Shape shape = ShapeOf(spec.type, options_.samples);
  const int64_t size_bytes = shape.elements() * SizeOf(spec.type.dtype);
  PENSTOCK_CHECK(static_cast<int64_t>(values.size()) == size_bytes);
  if (spec.ids > 0) {
    const absl::Span<const int32_t> ids(reinterpret_cast<const int32_t*>(values.data()),
                                        shape.elements());
    PENSTOCK_RETURN_IF_ERROR(CheckIds(spec, ids, ignored_in_ports_[port]));
  }
  PENSTOCK_ASSIGN_OR_RETURN(Buffer buffer, Acquire(size_bytes));
  backend_.CopyToDevice(buffer.data(), values.data(), size_bytes);
  return Tensor{std::move(buffer), spec.type.dtype, shape};
}

absl::Status Stage::CheckGiven(const Tensor& input, absl::Span<const Tensor> ports) const {
  if (!is_first()) {
    PENSTOCK_RETURN_IF_ERROR(CheckTensor("input", input, crossing_type(), input_shape()));
  }
  if (ports.size() != plan_.ports.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("layers %d to %d read %d ports, got %d", options_.layers.first,
                        options_.layers.end() - 1, plan_.ports.size(), ports.size()));
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    const Port& port = model_.ports[plan_.ports[i]];
    PENSTOCK_RETURN_IF_ERROR(
        CheckTensor(port.name, ports[i], port.type.dtype, plan_.slots[plan_.port_slots[i]].shape));
  }
  return absl::OkStatus();
}

void Stage::BeginPass(int64_t first_sample) {
  if (graphs_ != nullptr) graphs_->SetSample(first_sample);
}

absl::Status Stage::RunPass(Pass pass, int node, const Tape& tape, bool updates_buffers,
                            const void* weights, const void* mirror,
                            absl::FunctionRef<absl::Status()> queue) {
  if (graphs_ == nullptr) return queue();
  static_assert(PassGraphs::kArguments == 2 * kNodeInputsMax + 2 * kNodeBuffersMax + 9);
  PassGraphs::Key key = {pass, node};
  size_t next = 0;
  const auto add = [&](const void* data) {
    key.arguments[next++] = reinterpret_cast<uint64_t>(data);
  };
  for (const void* input : tape.inputs) add(input);
  for (const void* gradient : tape.grad_inputs) add(gradient);
  for (const void* state : tape.states) add(state);
  for (const void* state : tape.next_states) add(state);
  for (const void* data :
       {static_cast<const void*>(tape.output), tape.grad_output,
        static_cast<const void*>(tape.stash), static_cast<const void*>(tape.kept),
        static_cast<const void*>(tape.weight_stash), weights, mirror}) {
    add(data);
  }
  key.arguments[next++] = std::bit_cast<uint32_t>(tape.loss_scale);
  key.arguments[next] = updates_buffers ? 1 : 0;
  return graphs_->Run(key, queue);
}

absl::Status Stage::RunNode(const Walk& walk, int n) {
  const PassPlan::NodeSlots& of = plan_.nodes[n];
  const auto data = [&](int slot) {
    return slot < 0 || !walk.slots[slot] ? nullptr : walk.slots[slot].data<void>();
  };
  Tape tape;
  const size_t inputs = node(n).inputs.size();
  for (size_t i = 0; i < inputs; ++i) {
    tape.inputs[i] = data(of.inputs[i]);
    if (walk.pass == Pass::kBackwardInput) tape.grad_inputs[i] = data(of.grad_inputs[i]);
  }
  tape.output = data(of.output);
  tape.grad_output = data(of.grad_output);
  tape.stash = data(of.stash);
  tape.kept = data(of.kept);
  tape.weight_stash = data(of.weight_stash);
  const bool is_loss = node(n).op->is_loss();
  if (is_loss) tape.loss_scale = walk.loss_scale;
  if (is_loss && walk.ranks != nullptr) tape.ranks = walk.ranks->data<int32_t>();
  const std::vector<int64_t>& offsets = buffer_layout_.offsets[n];
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (node(n).buffers[i].kind == BufferSpec::Kind::kStatistic) {
      tape.buffers[i] = static_cast<float*>(buffers_.data()) + offsets[i];
    } else if (walk.pass == Pass::kForward) {
      tape.states[i] = static_cast<const float*>(data(of.states[i]));
      tape.next_states[i] = CarriedTo(walk, n, static_cast<int>(i));
    }
  }
  OpKernels& kernels = *kernels_[n];
  const PassContext context = {options_.seed, node(n).draw, walk.start.sample, walk.training,
                               walk.updates_buffers};
  absl::Status done;
  if (walk.pass == Pass::kBackwardWeight) {
    done = RunPass(walk.pass, n, tape, false, gradients(), nullptr,
                   [&] { return kernels.BackwardWeight(context, Gradients(n), tape); });
  } else if (is_loss && walk.predictions != nullptr) {
    tape.output = walk.predictions->data<void>();
    done = kernels.Predict(Weights(*walk.weights, n), tape);
  } else {
    const auto queue = [&] {
      return walk.pass == Pass::kForward
                 ? kernels.Forward(context, Weights(*walk.weights, n), tape)
                 : kernels.BackwardInput(context, Weights(*walk.weights, n), tape);
    };
    // The scale of a loss that ignores targets is another one for each microbatch, so no graph would fit twice.
    const bool repeats = walk.training && !(is_loss && ignores_targets_);
    done = repeats ? RunPass(walk.pass, n, tape, walk.updates_buffers, walk.weights->weights(),
                             walk.weights->mirror(), queue)
                   : queue();
  }
  return done.ok() ? done : Annotate(done, node(n).name);
}

float* Stage::CarriedTo(const Walk& walk, int n, int buffer) const {
  if (walk.carried == nullptr) return nullptr;
  const int64_t row = walk.start.sample % options_.step_samples;
  const int64_t first = buffer_layout_.offsets[n][buffer] - buffer_layout_.statistics;
  return walk.carried + first + row * node(n).buffers[buffer].size();
}

void Stage::Carry(const Walk& walk, const PassStep& step) {
  const Tensor& state = walk.slots[step.slot];
  const float* const carried = CarriedTo(walk, step.node, step.buffer);
  if (carried == nullptr || walk.start.afresh) {
    backend_.Fill(state.data<float>(), 0.0f, state.shape.elements());
  } else {
    backend_.CopyOnDevice(state.data<void>(), carried, state.size_bytes());
  }
}

absl::StatusOr<Tensor> Stage::Run(const Walk& walk) {
  Tensor returned;
  int layer = layer_count();  // that of the last node, where somebody is told
  for (const PassStep& step : walk.steps) {
    switch (step.kind) {
      case PassStep::Kind::kTake: {
        PENSTOCK_ASSIGN_OR_RETURN(walk.slots[step.slot], AcquireSlot(plan_.slots[step.slot]));
        break;
      }
      case PassStep::Kind::kShare: {
        const Tensor& from = walk.slots[step.from];
        walk.slots[step.slot] = {from.buffer, plan_.slots[step.slot].dtype,
                                 plan_.slots[step.slot].shape, from.offset_bytes + step.offset};
        break;
      }
      case PassStep::Kind::kRun:
        if (options_.on_layer) options_.on_layer(options_.layers.first + layer_of_node_[step.node]);
        if (walk.layer_done != nullptr && layer_of_node_[step.node] != layer) {
          if (layer < layer_count()) PENSTOCK_RETURN_IF_ERROR((*walk.layer_done)(layer));
          layer = layer_of_node_[step.node];
        }
        PENSTOCK_RETURN_IF_ERROR(RunNode(walk, step.node));
        break;
      case PassStep::Kind::kCarry:
        Carry(walk, step);
        break;
      case PassStep::Kind::kCopy:
        backend_.CopyOnDevice(walk.slots[step.slot].data<char>() + step.offset,
                              walk.slots[step.from].data<char>(),
                              walk.slots[step.from].size_bytes());
        break;
      case PassStep::Kind::kNarrow:
        backend_.ConvertToBf16(
            reinterpret_cast<uint16_t*>(walk.slots[step.slot].data<char>() + step.offset),
            walk.slots[step.from].data<float>(), walk.slots[step.from].shape.elements());
        break;
      case PassStep::Kind::kWiden:
        backend_.ConvertFromBf16(
            walk.slots[step.slot].data<float>(),
            reinterpret_cast<const uint16_t*>(walk.slots[step.from].data<char>() + step.offset),
            walk.slots[step.slot].shape.elements());
        break;
      case PassStep::Kind::kRound:
        backend_.RoundToBf16(walk.slots[step.slot].data<float>(),
                             walk.slots[step.slot].shape.elements());
        break;
      case PassStep::Kind::kAdd:
        backend_.AddInto(walk.slots[step.slot].data<float>(), walk.slots[step.from].data<float>(),
                         walk.slots[step.slot].shape.elements());
        break;
      case PassStep::Kind::kGive:
        if (step.slot == walk.result) returned = std::move(walk.slots[step.slot]);
        walk.slots[step.slot] = Tensor();
        break;
    }
  }
  if (walk.result >= 0 && !returned) returned = walk.slots[walk.result];
  return returned;
}

void Stage::PutPorts(const PassPlan& plan, absl::Span<const Tensor> ports,
                     std::vector<Tensor>& slots) {
  for (size_t i = 0; i < ports.size(); ++i) slots[plan.port_slots[i]] = ports[i];
}

// In any order of the microbatches, those of one place in a step must come step by step.
absl::Status Stage::CheckGoesOn(MicrobatchStart start) {
  if (!carries()) return absl::OkStatus();
  int64_t& last = last_samples_[start.sample % options_.step_samples / options_.samples];
  const int64_t before = start.sample - options_.step_samples;
  if (last >= 0 && last != before) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "layers %d to %d: sample %d goes on where sample %d ended, but the last one that went "
        "through here was sample %d; forwards must come step by step",
        options_.layers.first, options_.layers.end() - 1, start.sample, before, last));
  }
  last = start.sample;
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Stage::Forward(MicrobatchId microbatch, MicrobatchStart start,
                                      WeightRead read, Tensor input,
                                      absl::Span<const Tensor> ports) {
  PENSTOCK_RETURN_IF_ERROR(CheckGiven(input, ports));
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, WeightsOf(read));
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Begin(microbatch, start.sample));
  if (absl::Status goes_on = CheckGoesOn(start); !goes_on.ok()) {
    Forget(*slot);
    return goes_on;
  }
  slot->version = read.version;
  slot->kept_input = options_.recomputes;
  if (!is_first()) slot->slots[plan_.input] = std::move(input);
  PutPorts(plan_, ports, slot->slots);
  BeginPass(start.sample);
  absl::StatusOr<Tensor> output =
      Run({.pass = Pass::kForward,
           .steps = options_.recomputes ? plan_.forward_only : plan_.forward,
           .slots = slot->slots,
           .result = plan_.output,
           .start = start,
           .updates_buffers = true,
           .carried = carries() ? static_cast<float*>(buffers_.data()) + buffer_layout_.statistics
                                : nullptr,
           .weights = weights});
  if (!output.ok()) Forget(*slot);
  return output;
}

absl::StatusOr<Tensor> Stage::TakeInput(MicrobatchId microbatch) {
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Find(microbatch));
  if (!slot->kept_input) {
    return absl::FailedPreconditionError(
        absl::StrFormat("microbatch %d kept no input to hand over", microbatch.value));
  }
  Tensor input;
  if (!is_first()) input = std::move(slot->slots[plan_.input]);
  Forget(*slot);
  return input;
}

absl::Status Stage::PutInput(MicrobatchId microbatch, int64_t first_sample, Tensor input) {
  if (!is_first()) {
    PENSTOCK_RETURN_IF_ERROR(CheckTensor("input", input, crossing_type(), input_shape()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Begin(microbatch, first_sample));
  slot->kept_input = true;
  if (!is_first()) slot->slots[plan_.input] = std::move(input);
  return absl::OkStatus();
}

absl::Status Stage::Recompute(MicrobatchId microbatch, WeightRead read,
                              absl::Span<const Tensor> ports) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, WeightsOf(read));
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Find(microbatch));
  if (!slot->kept_input) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "microbatch %d kept no input to do its forward again from", microbatch.value));
  }
  const Tensor none;
  PENSTOCK_RETURN_IF_ERROR(CheckGiven(is_first() ? none : slot->slots[plan_.input], ports));
  slot->version = read.version;
  slot->kept_input = false;
  PutPorts(plan_, ports, slot->slots);
  BeginPass(slot->first_sample);
  const absl::Status done = Run({.pass = Pass::kForward,
                                 .steps = plan_.recompute,
                                 .slots = slot->slots,
                                 .start = slot->first_sample,
                                 .weights = weights})
                                .status();
  if (!done.ok()) Forget(*slot);
  return done;
}

absl::StatusOr<Tensor> Stage::RunWithoutTapes(int64_t version, Tensor input,
                                              absl::Span<const Tensor> ports, MicrobatchStart start,
                                              float* carried, const LossOutputs& wanted) {
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, LiveVersion(version));
  if (options_.evaluates_average && average_.exists()) weights = &average_.Read();
  if (!is_first()) passing_slots_[plan_.input] = std::move(input);
  PutPorts(plan_, ports, passing_slots_);
  absl::StatusOr<Tensor> output = Run({.pass = Pass::kForward,
                                       .steps = plan_.evaluate,
                                       .slots = passing_slots_,
                                       .result = plan_.output,
                                       .start = start,
                                       .training = false,
                                       .carried = carried,
                                       .weights = weights,
                                       .predictions = wanted.predictions,
                                       .ranks = wanted.ranks});
  if (!output.ok()) {
    for (Tensor& tensor : passing_slots_) tensor = Tensor();
  }
  return output;
}

absl::StatusOr<Stage::Evaluated> Stage::Evaluate(int64_t version, Tensor input,
                                                 absl::Span<const Tensor> ports,
                                                 MicrobatchStart start) {
  PENSTOCK_RETURN_IF_ERROR(CheckGiven(input, ports));
  Evaluated evaluated;
  LossOutputs wanted;
  if (is_last_ && model_.loss().classes > 0) {
    const Shape shape = {options_.samples * model_.targets_per_sample()};
    PENSTOCK_ASSIGN_OR_RETURN(evaluated.ranks, AcquireSlot({DType::kI32, shape}));
    wanted.ranks = &evaluated.ranks;
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      evaluated.output, RunWithoutTapes(version, std::move(input), ports, start,
                                        static_cast<float*>(evaluation_carries_.data()), wanted));
  return evaluated;
}

absl::StatusOr<double> Stage::ReadLoss(const Tensor& loss) {
  float value = 0.0f;
  backend_.CopyToHost(&value, loss.data<float>(), sizeof(value));
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  return value;
}

absl::StatusOr<std::vector<int32_t>> Stage::ReadRanks(const Tensor& ranks) {
  std::vector<int32_t> values(ranks ? ranks.shape.elements() : 0);
  if (ranks) backend_.CopyToHost(values.data(), ranks.data<int32_t>(), ranks.size_bytes());
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  return values;
}

absl::StatusOr<std::vector<float>> Stage::Predictions(int64_t version, Tensor input,
                                                      absl::Span<const Tensor> ports,
                                                      MicrobatchStart start) {
  PENSTOCK_CHECK(is_last_ && ports.size() == plan_.ports.size());
  const Shape shape = ShapeOf(kernels_.back()->prediction_type(), options_.samples);
  PENSTOCK_ASSIGN_OR_RETURN(Tensor predictions, AcquireSlot({DType::kF32, shape}));
  PENSTOCK_RETURN_IF_ERROR(RunWithoutTapes(version, std::move(input), ports, start,
                                           static_cast<float*>(evaluation_carries_.data()),
                                           {.predictions = &predictions})
                               .status());
  std::vector<float> values(shape.elements());
  backend_.CopyToHost(values.data(), predictions.data<float>(), predictions.size_bytes());
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  return values;
}

absl::StatusOr<Tensor> Stage::BackwardInput(MicrobatchId microbatch, WeightRead read,
                                            Tensor grad_output, float loss_scale) {
  if (plan_.grad_output >= 0) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckTensor("gradient of the output", grad_output, crossing_type(), grad_output_shape()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const WeightVersions::Version* weights, WeightsOf(read));
  PENSTOCK_RETURN_IF_ERROR(FinishPrefetch(microbatch).status());
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot,
                            FindAt(microbatch, InFlight::Where::kDevice, "backward"));
  if (slot->backward_input_done) {
    return absl::FailedPreconditionError(
        absl::StrFormat("second backward of the input for microbatch %d", microbatch.value));
  }
  if (slot->kept_input) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "backward of microbatch %d before its forward was done again", microbatch.value));
  }
  BeginPass(slot->first_sample);
  if (plan_.grad_output >= 0) slot->slots[plan_.grad_output] = std::move(grad_output);
  slot->loss_scale = loss_scale;
  PENSTOCK_ASSIGN_OR_RETURN(Tensor grad_input, Run({.pass = Pass::kBackwardInput,
                                                    .steps = plan_.backward_input,
                                                    .slots = slot->slots,
                                                    .result = plan_.grad_input,
                                                    .start = slot->first_sample,
                                                    .weights = weights,
                                                    .loss_scale = loss_scale}));
  slot->backward_input_done = true;
  PENSTOCK_RETURN_IF_ERROR(PrepareNextBackward(read.version));
  return grad_input;
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
  return RunBackwardWeight(microbatch, nullptr);
}

absl::Status Stage::BackwardWeight(MicrobatchId microbatch, LayerDone layer_done) {
  PENSTOCK_RETURN_IF_ERROR(RunBackwardWeight(microbatch, &layer_done));
  return layer_done(0);
}

absl::Status Stage::RunBackwardWeight(MicrobatchId microbatch, const LayerDone* layer_done) {
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Find(microbatch));
  if (!slot->backward_input_done) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "backward of the weights for microbatch %d before that of its input", microbatch.value));
  }
  PENSTOCK_RETURN_IF_ERROR(EnsureGradients());
  BeginPass(slot->first_sample);
  PENSTOCK_RETURN_IF_ERROR(Run({.pass = Pass::kBackwardWeight,
                                .steps = plan_.backward_weight,
                                .slots = slot->slots,
                                .start = slot->first_sample,
                                .loss_scale = slot->loss_scale,
                                .layer_done = layer_done})
                               .status());
  slot->used = false;
  return absl::OkStatus();
}

}  // namespace penstock
