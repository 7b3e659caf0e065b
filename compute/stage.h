// Stage: consecutive layers of a model on one device, with their weights in every live version.
//
// Weights, gradients and optimizer state are flat arenas (compute/parameter_arena.h). A version of the
// weights is one flat array; Step writes the next version into the same array, or, when the replaced one
// is still to be read, into another that is kept for this purpose (weight stashing without copies).
//
// A stage is device-neutral: it keeps the books, the back-end computes. Memory of microbatches comes from
// the back-end's pool; after the first few microbatches a stage allocates nothing.
//
// Thread safety: the thread that owns the back-end. The tensors it returns may be dropped anywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "compute/activation_bytes.h"
#include "compute/backend.h"
#include "compute/buffer_layout.h"
#include "compute/offload_store.h"
#include "compute/parameter_arena.h"
#include "compute/pass_plan.h"
#include "compute/update_history.h"
#include "compute/weight_average.h"
#include "compute/weight_versions.h"
#include "model/graph.h"

namespace penstock {

struct StageOptions {
  LayerRange layers;
  StageEnds ends = StageEnds::kCuts;
  int64_t samples = 1;  // of a microbatch
  // Of a step, each of which goes on where the same one of the step before ended, in what buffers carry; 0: nothing is
  // kept from step to step, and every sample starts afresh.
  int64_t step_samples = 0;
  Precision precision = Precision::kF32;
  Rounding rounding = Rounding::kNearest;
  StashPlace stash = StashPlace::kDevice;
  bool recomputes = false;  // Forward keeps no more than its input, Recompute makes the rest
  bool updates = true;      // else it makes no steps, and has no optimizer's state
  // It has an array of gradients only from the first that comes until they are taken, or a step.
  bool drops_gradients = false;
  // Weights come with PutWeights and go with DropWeights. REQUIRES: it makes no updates, and drops gradients.
  bool borrows_weights = false;
  // Weights and the optimizer's state are somewhere else, come with PutWeights and PutState and go with DropWeights and
  // DropState; what a call reads is to be there. REQUIRES: it drops gradients, borrows no weights, and keeps no average
  // and no history.
  bool stores_state = false;
  bool cuda_graphs = false;  // capture passes, where the device can
  OptimizerConfig optimizer;
  HistoryOptions history;
  bool keeps_average = false;      // of its weights (weight_average.h), if it updates
  bool evaluates_average = false;  // Evaluate reads that, in the place of a version
  uint64_t seed = 0;
  int64_t versions_max = 1;  // live weight versions at the most (the verifier's number)
  int64_t microbatches_in_flight_max = 1;  // between F and W (the verifier's number)
  // Told before each node of F, I and W which layer of the model it belongs to, for profilers. May be empty.
  std::function<void(int layer)> on_layer;
};

// What a microbatch starts with; a number is a sample that starts afresh.
struct MicrobatchStart {
  int64_t sample = 0;  // global index of row 0
  bool afresh = true;  // nothing is carried to the samples: their sequences begin here

  // NOLINTNEXTLINE(google-explicit-constructor)
  MicrobatchStart(int64_t sample = 0, bool afresh = true) : sample(sample), afresh(afresh) {}
};

// A host copy of a named tensor in f32, as checkpoints hold it.
struct NamedArray {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// SHA-256 (hex) over the values of a layer's parameters, in order, f32 little endian.
std::string ParametersDigest(absl::Span<const NamedArray> parameters);

class Stage {
 public:
  // Version 0 is live and all zeros: InitializeWeights or LoadLayerWeights comes next.
  //
  // REQUIRES: `backend` outlives the stage.
  // Errors: InvalidArgument (layers outside the model, sizes below 1, a step of no whole microbatches),
  // Unimplemented (the back-end lacks a kernel), ResourceExhausted (out of memory).
  static absl::StatusOr<std::unique_ptr<Stage>> Create(Backend& backend, const ModelGraph& model,
                                                       const StageOptions& options);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  bool is_first() const { return plan_.input < 0; }  // nothing comes from another stage
  bool is_last() const { return is_last_; }          // computes the loss
  // Of the tensors that cross into and out of this stage, forward and backward; rank 0 where nothing does.
  Shape input_shape() const { return ShapeOfSlot(plan_.input); }
  Shape output_shape() const { return is_last_ ? Shape() : ShapeOfSlot(plan_.output); }
  Shape grad_input_shape() const { return ShapeOfSlot(plan_.grad_input); }
  Shape grad_output_shape() const { return ShapeOfSlot(plan_.grad_output); }
  DType crossing_type() const {
    return options_.ends == StageEnds::kCuts ? CrossingType(options_.precision) : DType::kF32;
  }
  // The ports of the model that its layers read, ascending.
  absl::Span<const int> ports() const { return plan_.ports; }

  // Fills the current version with the initial weights of the job's seed, the same for every partition,
  // and clears the optimizer's state.
  void InitializeWeights();

  // Data of a port of a microbatch, on the device. `values`: elements of the port's type, sample after sample.
  // REQUIRES: `port` is one of the model's; `values` has the bytes of a microbatch.
  // Errors: InvalidArgument (an id that its readers cannot look up), ResourceExhausted.
  absl::StatusOr<Tensor> PortToDevice(int port, absl::Span<const std::byte> values);

  // `input`: from the stage before; empty on the first. `ports`: by entry of ports().
  // Returns the output; of the last stage the mean loss over the microbatch's valid targets, [1] f32 (ReadLoss).
  //
  // Errors: InvalidArgument (shape or type of a tensor), FailedPrecondition (version not live, or to be
  // predicted without options.history.momentum_average, microbatch already in flight, too many in flight, or
  // samples that go on from others than the last ones that went through here).
  absl::StatusOr<Tensor> Forward(MicrobatchId microbatch, MicrobatchStart start, WeightRead read,
                                 Tensor input, absl::Span<const Tensor> ports);
  // Whether it keeps what is carried to the samples of the next step.
  int64_t step_samples() const { return options_.step_samples; }
  bool carries() const { return buffer_layout_.carried() > 0; }
  // Repeats, on a stage that recomputes, the forward between Forward and BackwardInput, and leaves
  // what the backward needs. `read`: what BackwardInput will read. `ports`: as in Forward.
  //
  // Errors: InvalidArgument (shape or type of a port), FailedPrecondition (version not live,
  // no F before, or nothing kept to start from).
  absl::Status Recompute(MicrobatchId microbatch, WeightRead read, absl::Span<const Tensor> ports);
  // Where another stage does the backward of these layers. TakeInput: of a stage that
  // recomputes, after Forward and in the place of Recompute: what it kept, which it then forgets
  // together with the microbatch. PutInput: what a Forward elsewhere kept, so that Recompute
  // may follow. Both are empty on a first stage.
  //
  // Errors: FailedPrecondition (no F before, or nothing kept; in flight already, too many in
  // flight), InvalidArgument (shape or type).
  absl::StatusOr<Tensor> TakeInput(MicrobatchId microbatch);
  absl::Status PutInput(MicrobatchId microbatch, int64_t first_sample, Tensor input);

  // Moves of a stash between F (or R) and I, in this order (schedule/offload.h); from Offload on no pass may have it.
  //
  // `store`: where stashes go. REQUIRES: it outlives the stage; nothing is in flight.
  void OffloadTo(OffloadStore& store) { offload_store_ = &store; }
  // Begins to copy what F left to the store. Returns its bytes.
  // Errors: FailedPrecondition (no F before, or I after it; it kept an input only; no store), those of the store.
  absl::StatusOr<int64_t> Offload(MicrobatchId microbatch);
  // Waits for that and gives the memory back. Errors: FailedPrecondition (no Offload before), those of the store.
  absl::StatusOr<CopySpan> Evict(MicrobatchId microbatch);
  // Takes memory and begins to copy it back. Errors: FailedPrecondition (no Evict before), those of the store.
  absl::Status Prefetch(MicrobatchId microbatch);
  // Waits for that, if it was asked for, and returns when it was under way; I may come now. Errors: those of the store.
  absl::StatusOr<std::optional<CopySpan>> FinishPrefetch(MicrobatchId microbatch);

  struct Evaluated {
    Tensor output;  // as of Forward
    // Of a last stage whose loss is over classes: by target of the microbatch, i32, its rank among the classes
    // (Tape::ranks). Else empty.
    Tensor ranks;
  };
  // Forward without dropout that leaves nothing behind but what it returns, and what is carried to the next step of the
  // evaluation, apart from what is carried in training. With options.evaluates_average it reads the average of the weights.
  absl::StatusOr<Evaluated> Evaluate(int64_t version, Tensor input, absl::Span<const Tensor> ports,
                                     MicrobatchStart start = {});
  // Waits for a loss that Forward or Evaluate returned. Errors: those of the device.
  absl::StatusOr<double> ReadLoss(const Tensor& loss);
  // The same of its ranks; none of an empty tensor.
  absl::StatusOr<std::vector<int32_t>> ReadRanks(const Tensor& ranks);

  // Returns the gradient for the previous stage (empty on the first). `grad_output` is empty on
  // the last. `loss_scale`: the factor of this microbatch's mean loss in the update it belongs to
  // (its part of the update's valid targets), applied where the gradient starts.
  //
  // Errors: InvalidArgument (shape or type), FailedPrecondition (as Forward, or no F or R before, I again).
  absl::StatusOr<Tensor> BackwardInput(MicrobatchId microbatch, WeightRead read, Tensor grad_output,
                                       float loss_scale);
  // Adds the microbatch's gradients and forgets the microbatch. The gradients come from what F and I
  // left behind, so no version is read.
  //
  // Errors: FailedPrecondition (no I before).
  absl::Status BackwardWeight(MicrobatchId microbatch);
  // The same. Calls `layer_done(layer)`, by layer of the stage from the last to the first, once the calls so far make the
  // gradients of that layer and of those behind it whole; the last call is of layer 0. Errors also: those of `layer_done`,
  // which end the pass.
  using LayerDone = absl::FunctionRef<absl::Status(int layer)>;
  absl::Status BackwardWeight(MicrobatchId microbatch, LayerDone layer_done);

  // Squared norm of each layer's gradient, by layer of the stage. A shared parameter counts with the layer of the
  // model that it belongs to (after its gradients were combined), which may be on another stage. Errors: those of the
  // device.
  absl::Status LayerSquaredNorms(absl::Span<double> norms);

  // Ties of the model (model/graph.h) whose uses are on several stages, which add their gradients up from the last
  // stage to the first. REQUIRES for all three: this stage has one of the uses, but not all.
  //
  // Adds up the uses of this stage, from its last to its first. `later`: what those of the stages behind it come to,
  // to which they are added; empty where this stage has the last use. Once for each update.
  void CombineTied(int tie, const Tensor& later);
  // The gradient of this stage's first use, which CombineTied makes the sum of that and all uses behind it: [elements]
  // f32, a tensor that refers to the arena (no copy).
  Tensor TiedGradient(int tie);
  // Whether this stage uses the parameters once, so that CombineTied adds nothing of its own.
  bool UsesOnce(int tie) const { return arena_.tied(tie).uses.empty(); }
  // Adds up the uses of parameters that are used on no other stage, from the last use to the first. Once for each
  // update: does nothing when it is called again.
  void CombineUses();

  // Where several stages have the same layers (schedule/schedule.h, pipelines there and back).
  //
  // The accumulated gradients, which are copied to `to` and then set to zero, or replaced by `from`. REQUIRES:
  // arrays of gradient_count() floats on the device; there are gradients to take. Errors: ResourceExhausted.
  int64_t gradient_count() const { return arena_.gradient_count(); }
  // They themselves, [gradient_count()] f32, a tensor that refers to the arena (no copy).
  Tensor AccumulatedGradients() { return {gradients_, DType::kF32, {arena_.gradient_count()}}; }
  void TakeGradients(float* to);
  void DropGradients() { ClearGradients(); }
  absl::Status PutGradients(const float* from);
  // Copies what updates change of the current version's weights to `to`; makes `weights` the next version `version`,
  // without a step.
  // REQUIRES: arrays of trained_count() floats on the device. Errors: FailedPrecondition (version -
  // 1 is not the current one).
  int64_t trained_count() const { return arena_.trained_count(); }
  bool updates() const { return options_.updates; }
  void CopyWeights(float* to);
  absl::Status AdoptWeights(int64_t version, const float* weights);
  // Streamed weights, all that a version has: a copy of live version `version`, or the array of that version of a stage that
  // borrows or stores them, until DropWeights. REQUIRES: weight_shape() f32 on the device; of PutWeights: an array of its
  // own, which nobody else writes to. Errors: FailedPrecondition (the version is not live, there are weights already),
  // InvalidArgument (shape or type), ResourceExhausted.
  Shape weight_shape() const { return {std::max<int64_t>(arena_.weight_count(), 1)}; }
  absl::Status CopyAllWeights(int64_t version, float* to);
  absl::Status PutWeights(int64_t version, Tensor weights);
  void DropWeights() { versions_.DropArrays(); }
  bool has_weights() const { return versions_.has_arrays(); }
  // The array of the current version, no copy. REQUIRES: has_weights().
  Tensor Weights() const;
  // Of a stage that stores its state: the arrays of the optimizer's state that are there, no copies, until DropState.
  // REQUIRES: state_count() of state_shape() f32 on the device, which nobody else writes to.
  int64_t state_count() const;
  Shape state_shape() const { return {arena_.trained_count()}; }
  std::vector<Tensor> State();
  void PutState(absl::Span<const Tensor> arrays);
  void DropState() { PutState({}); }
  bool stores_state() const { return options_.stores_state; }

  // The buffers of all nodes (model/op.h), statistics first; a tensor [buffer_count()] f32 that refers to them (no
  // copy).
  //
  // Of r replicas of a stage, each has statistics of its own, and carries what goes through it: microbatch m goes
  // through replica m mod r. Their sum becomes what one stage would have with these two. BeginBufferSum makes what the
  // others carry -0, which changes no number that it is added to; EndBufferSum makes the statistics the mean.
  // REQUIRES: r divides the microbatches of a step; nothing is in flight.
  int64_t buffer_count() const { return buffer_layout_.count; }
  int64_t statistics_count() const { return buffer_layout_.statistics; }
  Tensor Buffers() { return {buffers_, DType::kF32, {buffer_count()}}; }
  void BeginBufferSum(int64_t replica, int64_t replicas);
  void EndBufferSum(int64_t replicas);

  // Delay compensation (Zheng et al., ICML 2017, arXiv 1609.08326): the accumulated gradient was taken at
  // version `read`, and what the current weights would have given is g + strength g^2 (w - w_read), with g^2 in
  // the place of the curvature; where the history keeps mean squares, `strength` is over their roots, and each
  // update does this, late or not. REQUIRES: tied gradients are combined.
  // Errors: FailedPrecondition (the version is not live), ResourceExhausted.
  absl::Status CompensateDelay(int64_t read, double strength);

  struct StepOptions {
    double learning_rate = 0.0;
    // By layer of the model: the factor clipping puts on the gradients of its parameters (all equal for global
    // clipping). Those of layers are read that are on this stage, or share a parameter with one that is.
    absl::Span<const float> gradient_scales;
    bool keep_replaced = false;  // the replaced version is still to be read
    int64_t oldest_live_version = 0;
    double average_keep = 1.0;  // the part of the weights' average that stays
    bool feed_back =
        false;  // error feedback (update_history.h), for a gradient that is one update late
  };
  // Takes the memory of all versions_max versions now and not when they are first live. REQUIRES:
  // the stash is on the device. Errors: ResourceExhausted.
  absl::Status ReserveVersions() { return versions_.Reserve(); }

  // Makes version `version` from version - 1, then clears the gradients.
  //
  // Errors: FailedPrecondition (version - 1 is not the current one, more than versions_max live).
  absl::Status Step(int64_t version, const StepOptions& options);
  // In place of Step: version `version` is the weights of version - 1, the optimizer's state stays
  // as it is, and the gradients are dropped. Takes no memory.
  //
  // Errors: FailedPrecondition (version - 1 is not the current one).
  absl::Status KeepWeights(int64_t version, int64_t oldest_live_version);
  int64_t version() const;  // the current one

  // Replicas of one stage take the mean of their weights, of their optimizers' state and of their statistics, each
  // summed in the order of `stages`, and get what the others carry, so that all hold the same bits. Versions keep
  // their numbers.
  // REQUIRES: the stages have the same layers, options and back-end, and nothing is in flight.
  static void Average(absl::Span<Stage* const> stages);

  // Host copies by layer of the stage, at the current version: parameters, frozen ones too, each once, then buffers; one
  // that is carried has a row for each sample of a step. A layer has the parameters that it shares with others, too, whether it
  // reads their array (same stage) or a copy of its own.
  // REQUIRES: nothing is in flight; of the optimizer's state: updates().
  std::vector<NamedArray> LayerWeights(int layer);
  std::vector<NamedArray> LayerOptimizerState(
      int layer);  // "<parameter>.<slot>", the history's too; of frozen ones there is none
  // What is carried is left out where nothing is kept from step to step. A history that the arrays lack starts from
  // zero, and one that is not kept here is left out: another method may resume from a checkpoint.
  // Errors: InvalidArgument naming a tensor that is missing, unexpected or has another shape. On error
  // nothing has changed.
  absl::Status LoadLayerWeights(int layer, absl::Span<const NamedArray> arrays);
  absl::Status LoadLayerOptimizerState(int layer, absl::Span<const NamedArray> arrays);
  // The gradients accumulated so far, for tests and the parity check.
  std::vector<NamedArray> LayerGradients(int layer);
  // Sets the number of the current weights, and how many of their updates so far (Step and
  // KeepWeights) Step made, which bias corrections and rounding count; by default the two are
  // equal. REQUIRES: one live version.
  void SetVersion(int64_t version) { SetVersion(version, version); }
  void SetVersion(int64_t version, int64_t steps);
  // The ParametersDigest of each layer at the current version.
  std::vector<std::string> LayerDigests();

  struct MemoryStats {
    int64_t version_bytes = 0;  // weights of one version
    int64_t frozen_bytes = 0;   // of those that all versions share
    int64_t weight_bytes = 0;   // all versions now allocated on the device
    int64_t versions_allocated = 0;
    int64_t host_stash_bytes = 0;  // versions that wait on the host
    int64_t gradient_bytes = 0;
    int64_t optimizer_bytes = 0;  // the history's state too
    int64_t predicted_bytes = 0;  // of predicted weights
  };
  MemoryStats memory() const;
  // Nodes that compute by slow kernels, and why the first does (OpKernels::fallback).
  struct Fallbacks {
    int64_t nodes = 0;
    std::string first;
  };
  const Fallbacks& fallbacks() const { return fallbacks_; }
  // Returns zeros without CUDA graphs. Any thread.
  PassGraphs::Stats graph_stats() const {
    return graphs_ == nullptr ? PassGraphs::Stats() : graphs_->stats();
  }
  // Weight versions on the device at once, if `versions` are live.
  int64_t DeviceVersions(int64_t versions) const;
  const ActivationBytes& activation_bytes() const { return activation_bytes_; }
  const std::vector<TapeNeeds>& tape_needs() const { return needs_; }  // by node of the stage

  // What the loss is over, of each sample: [batch, ..., classes] on the host. Ports that only the loss reads may be
  // empty. REQUIRES: is_last(). Errors: Unimplemented (a loss without predictions).
  // `start`: as of Evaluate, whose state it carries on, too.
  absl::StatusOr<std::vector<float>> Predictions(int64_t version, Tensor input,
                                                 absl::Span<const Tensor> ports,
                                                 MicrobatchStart start = {});
  // Evaluates with the weights of `other`'s current version, and carries on what `other` carries when it evaluates: the same
  // memory, no copies. REQUIRES: it borrows weights, and has none; both have the same parameters, samples and carried
  // buffers, as a model in time steps of other counts has (model/decode_step.h). Errors: those of PutWeights.
  absl::Status EvaluateFor(const Stage& other);

 private:
  // A microbatch between F and W.
  struct InFlight {
    enum class Where : uint8_t { kDevice, kLeaving, kStore, kComing };
    bool used = false;
    bool backward_input_done = false;
    MicrobatchId microbatch;
    int64_t first_sample = 0;
    int64_t version = 0;      // that I will read
    bool kept_input = false;  // from F to R, of a stage that recomputes
    float loss_scale = 1.0f;
    std::vector<Tensor> slots;  // of the plan
    Where where = Where::kDevice;
    int64_t stash = -1;          // its number in the store, where it is there
    std::vector<Buffer> blocks;  // that leave, or have come
    std::vector<int> block_of;   // by slot: the block that it is in; -1: none
  };

  Stage(Backend& backend, const ModelGraph& model, const StageOptions& options);
  absl::Status Build();
  // REQUIRES: `n` is a node of the model.
  Precision PrecisionOfNode(int n) const;
  absl::Status AllocateArrays();
  absl::Status AllocateBuffers();
  void ResetBuffers();
  // Calls visit(buffer, device) for each buffer that a layer's nodes have here, with the shape that it has here.
  void ForBuffers(int layer, absl::FunctionRef<void(const BufferSpec&, float*)> visit);
  // Whether it is kept here, and with checkpoints.
  bool IsStored(const BufferSpec& buffer) const {
    return IsKept(buffer, options_.step_samples) && !buffer.in_place;
  }
  // Of what is carried, with the samples of a step before its other dimensions.
  BufferSpec KeptHere(const BufferSpec& buffer) const;
  // Checks that a forward comes after that of the same samples of the step before, and notes it.
  absl::Status CheckGoesOn(MicrobatchStart start);

  // With no more versions than the stash leaves on the device there is nothing to put away.
  bool stashes_on_host() const {
    return options_.stash == StashPlace::kHost &&
           options_.versions_max > HostStash::kDeviceVersionsMax;
  }
  int layer_count() const { return options_.layers.count; }
  const LayerSpec& layer_spec(int layer) const {
    return model_.layers[options_.layers.first + layer];
  }
  const Node& node(int local) const { return model_.nodes[plan_.first_node + local]; }
  Shape ShapeOfSlot(int slot) const { return slot < 0 ? Shape() : plan_.slots[slot].shape; }
  absl::StatusOr<Buffer> Acquire(int64_t size_bytes);
  absl::StatusOr<Tensor> AcquireSlot(const PassPlan::Slot& slot);
  // Of what a walk reads: the version, or what all versions share.
  WeightView Weights(const WeightVersions::Version& version, int node) const;
  GradientView Gradients(int node) const;
  float* gradients() const { return static_cast<float*>(gradients_.data()); }
  absl::StatusOr<const WeightVersions::Version*> LiveVersion(int64_t number);
  absl::StatusOr<const WeightVersions::Version*> WeightsOf(WeightRead read);

  absl::StatusOr<InFlight*> Begin(MicrobatchId microbatch, int64_t first_sample);
  absl::StatusOr<InFlight*> Find(MicrobatchId microbatch);
  // The same of a stash that is at `where`. Errors: FailedPrecondition naming what was asked of it.
  absl::StatusOr<InFlight*> FindAt(MicrobatchId microbatch, InFlight::Where where,
                                   absl::string_view asked);
  static void Forget(InFlight& slot);
  // After I of a microbatch that read `version`: the stash may put it away, and bring back what the next
  // microbatch will read.
  absl::Status PrepareNextBackward(int64_t version);
  absl::Status CheckTensor(absl::string_view what, const Tensor& tensor, DType dtype,
                           const Shape& shape) const;
  absl::Status CheckGiven(const Tensor& input, absl::Span<const Tensor> ports) const;

  // One walk over the steps of a pass.
  struct Walk {
    Pass pass;
    absl::Span<const PassStep> steps;
    std::vector<Tensor>& slots;
    int result = -1;  // the slot that is returned
    MicrobatchStart start;
    bool training = true;
    bool updates_buffers = false;
    float* carried = nullptr;                          // of all samples of a step; null: nothing is
    const WeightVersions::Version* weights = nullptr;  // of F and I
    float loss_scale = 1.0f;
    Tensor* predictions = nullptr;          // in the place of the loss
    Tensor* ranks = nullptr;                // beside it
    const LayerDone* layer_done = nullptr;  // told as BackwardWeight says; null: nobody is
  };
  // What a loss is asked for without tapes; null: not that.
  struct LossOutputs {
    Tensor* predictions = nullptr;
    Tensor* ranks = nullptr;
  };
  void BeginPass(int64_t first_sample);
  void Combine(absl::Span<const ParameterArena::Use> uses);
  void ClearGradients();
  // Takes the array of gradients, of zeros, if it is not there.
  absl::Status EnsureGradients();
  absl::StatusOr<Tensor> Run(const Walk& walk);
  absl::Status RunBackwardWeight(MicrobatchId microbatch, const LayerDone* layer_done);
  absl::Status RunNode(const Walk& walk, int node);
  void Carry(const Walk& walk, const PassStep& step);
  // What is carried to the first sample of a walk; null: nothing is.
  float* CarriedTo(const Walk& walk, int node, int buffer) const;
  // Performs a node's pass, or replays it. `weights`, or in W the gradients, are all it reads and writes
  // beside the tape.
  absl::Status RunPass(Pass pass, int node, const Tape& tape, bool updates_buffers,
                       const void* weights, const void* mirror,
                       absl::FunctionRef<absl::Status()> queue);
  static void PutPorts(const PassPlan& plan, absl::Span<const Tensor> ports,
                       std::vector<Tensor>& slots);
  // F without anything kept for a backward.
  absl::StatusOr<Tensor> RunWithoutTapes(int64_t version, Tensor input,
                                         absl::Span<const Tensor> ports, MicrobatchStart start,
                                         float* carried, const LossOutputs& wanted);

  // Where a parameter of a layer is in an array; null: it has no place there, because it is frozen, or borrowed.
  using PlaceOf = absl::FunctionRef<float*(size_t parameter)>;
  float* WeightPlace(int layer, size_t parameter) const;
  float* StatePlace(int layer, size_t parameter, float* array) const;
  // In an array as long as a version's.
  float* VersionPlace(int layer, size_t parameter, float* array) const;
  // Copies `layer`'s parameters between the host and their places.
  std::vector<NamedArray> CopyOut(int layer, absl::string_view suffix, PlaceOf place);
  absl::Status CheckArrays(int layer, absl::Span<const absl::string_view> suffixes,
                           absl::Span<const NamedArray> arrays) const;
  void CopyIn(int layer, absl::string_view suffix, absl::Span<const NamedArray> arrays,
              PlaceOf place);
  void RefreshMirror();
  // The mirror of what is frozen, which is rounded once.
  void RefreshFrozenMirror();
  // Makes what is frozen in version `to` what it is in `from`.
  void CopyKept(const WeightVersions::Transition& transition);

  // Constant after Create.
  Backend& backend_;
  const StageOptions options_;
  const ModelGraph model_;
  const bool ignores_targets_;
  const std::vector<std::optional<int32_t>> ignored_in_ports_;
  const ParameterArena arena_;
  const BufferLayout buffer_layout_;
  const bool is_last_;
  std::vector<std::unique_ptr<OpKernels>> kernels_;  // by node
  std::vector<TapeNeeds> needs_;                     // by node
  std::vector<int> first_parameters_;                // by node: in the parameters of its layer
  std::vector<int> layer_of_node_;                   // of the stage
  PassPlan plan_;
  ActivationBytes activation_bytes_;
  std::vector<int> slice_owners_;         // by slice: the layer of the model that it belongs to
  std::unique_ptr<Optimizer> optimizer_;  // null, as the norms: nothing here is trained
  std::unique_ptr<SliceNorms> norms_;
  Fallbacks fallbacks_;
  std::unique_ptr<PassGraphs> graphs_;  // null: passes are asked for call by call

  WeightArrays frozen_;
  WeightVersions versions_;
  int64_t steps_ = 0;           // that the current weights have seen
  bool uses_combined_ = false;  // for the next update
  Buffer gradients_;
  std::vector<Buffer> optimizer_state_;  // by slot
  std::vector<float*> optimizer_arrays_;
  UpdateHistory history_;
  WeightAverage average_;
  Buffer buffers_;                     // of nodes, flat
  Buffer evaluation_carries_;          // in the place of what training carries
  std::vector<int64_t> last_samples_;  // by microbatch of a step: the first of the last F; -1: none
  // The optimizer's state and the history's: names and arrays.
  std::vector<absl::string_view> state_names_;
  std::vector<float*> state_arrays_;
  std::vector<InFlight> in_flight_;
  OffloadStore* offload_store_ = nullptr;  // null: nothing is offloaded
  std::vector<Tensor> passing_slots_;      // of passes that keep nothing
  std::vector<double> slice_norms_;        // by slice, for the time of a call
  std::vector<float> slice_scales_;
};

}  // namespace penstock
