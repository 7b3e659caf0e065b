#include "worker/executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "compute/clip.h"
#include "job/run/message_bytes.h"
#include "penstock/v1/cluster.pb.h"
#include "worker/acquire.h"
#include "worker/update_rule.h"

namespace penstock {
namespace {

// Steps after which training takes no new memory.
constexpr int64_t kWarmUpSteps = 2;

}  // namespace

Executor::Executor(const ExecutorParts& parts)
    : parts_(parts),
      machine_(parts.topology, parts.worker, kSingleVersion),
      timer_(parts.clock, parts.recorder, parts.device_spans),
      courier_(parts.backend),
      local_index_(parts.topology.stages(), -1),
      layer_norms_(parts.job.model.size()),
      ports_(parts.job.model, parts.job.microbatch_samples, parts.data),
      valid_targets_(parts.job, parts.data) {
  for (size_t i = 0; i < parts_.stages.size(); ++i) {
    LocalStage& local = parts_.stages[i];
    local_index_[local.id.value] = static_cast<int32_t>(i);
    local.owners_before = OwnersBefore(parts_.job.model, local.layers);
    local.squared_norms.assign(parts_.job.model.size(), 0.0);
    local.gradient_scales.assign(parts_.job.model.size(), 1.0f);
    machine_.SetVersion(local.id, local.first_version);
  }
  const std::vector<ReduceGroup>& groups = parts_.topology.groups;
  for (size_t id = 0; id < groups.size() && !first_copy_.has_value(); ++id) {
    const bool local = std::any_of(groups[id].stages.begin(), groups[id].stages.end(),
                                   [this](StageId stage) { return FindLocal(stage) != nullptr; });
    const bool copies = groups[id].operation == ReduceGroup::Operation::kCopy;
    if (copies && local) first_copy_ = GroupId(static_cast<int32_t>(id));
  }
}

bool Executor::BeginsMicrobatch(const Action& action) const {
  switch (action.kind) {
    case ActionKind::kRecvActivation:
    case ActionKind::kForward:
    case ActionKind::kSendRequest:
    case ActionKind::kRecvRequest:
    case ActionKind::kLoadWeights:
      return true;
    case ActionKind::kRecvCheckpoint:
    case ActionKind::kRecompute:
      return !parts_.topology[action.stage()].forward;
    default:
      return false;
  }
}

Action Executor::BehindMoves(ProgramCursor cursor) {
  while (MovesStash(cursor.Current().kind)) cursor.Advance();
  return cursor.Current();
}

absl::StatusOr<MicrobatchRange> Executor::Train(MicrobatchRange range) {
  training_ = true;
  absl::Status trained =
      parts_.job.order == Order::kRecorded ? TrainAsReady(range) : TrainInOrder(range);
  if (trained.ok()) trained = DrainEdges();
  HidePulse();
  PENSTOCK_RETURN_IF_ERROR(trained);
  PENSTOCK_RETURN_IF_ERROR(timer_.Finish());
  EndWindow();
  if (range.count > 0) PENSTOCK_RETURN_IF_ERROR(CombineBuffers());
  return range;
}

absl::Status Executor::CombineBuffers() {
  ActionTimer timer(parts_.clock, parts_.recorder, nullptr);  // it is not training
  const std::vector<ReduceGroup>& groups = parts_.topology.groups;
  for (size_t id = 0; id < groups.size(); ++id) {
    if (!parts_.topology.IsOfReplicas(groups[id])) continue;
    for (const StageId stage : groups[id].stages) {
      LocalStage* const local = FindLocal(stage);
      if (local == nullptr || local->stage->buffer_count() == 0) continue;
      PENSTOCK_RETURN_IF_ERROR(parts_.collectives.CombineBuffers(GroupId(static_cast<int32_t>(id)),
                                                                 *local->stage, courier_, timer));
    }
  }
  return DrainEdges();
}

absl::Status Executor::TrainInOrder(MicrobatchRange& range) {
  PENSTOCK_ASSIGN_OR_RETURN(WorkerProgram whole, parts_.training_program(range));
  Program& program = whole.program;
  ProgramCursor cursor(program);
  machine_.SetPolicy(whole.weight_policy);
  machine_.BeginRange(Completeness::kTrain);
  BeginWindow();
  while (!cursor.Done()) {
    const Action action = cursor.Current();
    const Action behind = MovesStash(action.kind) ? BehindMoves(cursor) : action;
    if (BeginsMicrobatch(behind)) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool goes_on, EnterGate(behind.microbatch, range));
      if (!goes_on) {
        if (range.count == 0) break;
        HidePulse();
        PENSTOCK_RETURN_IF_ERROR(SwapProgram(program, cursor, range));
        ShowPulse();
        continue;
      }
    }
    PENSTOCK_RETURN_IF_ERROR(Perform(action));
    cursor.Advance();
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> Executor::Evaluate(const Program& program, int64_t step) {
  machine_.BeginRange(Completeness::kEvaluate);
  training_ = false;
  evaluated_step_ = step;
  losses_.BeginEvaluation();
  if (std::exchange(has_evaluated_, true)) {
    ShowPulse();
  } else {
    courier_.pulse().Show(Pulse::Shows::kUnsteady);
  }
  const absl::Status evaluated = PerformAll(program);
  HidePulse();
  PENSTOCK_RETURN_IF_ERROR(evaluated);
  return losses_.evaluation().Result(parts_.job.model);
}

absl::StatusOr<double> Executor::ShareLoss(double loss) {
  ActionTimer timer(parts_.clock, parts_.recorder, nullptr);  // it is not training
  const Topology& topology = parts_.topology;
  PENSTOCK_RETURN_IF_ERROR(parts_.collectives.Share(topology.worker(topology.TellsEvaluations()),
                                                    loss, courier_, timer));
  PENSTOCK_RETURN_IF_ERROR(DrainEdges());
  return loss;
}

absl::Status Executor::PerformAll(const Program& evaluation) {
  for (ProgramCursor cursor(evaluation); !cursor.Done(); cursor.Advance()) {
    PENSTOCK_RETURN_IF_ERROR(parts_.gate.cancelled());
    PENSTOCK_RETURN_IF_ERROR(Perform(cursor.Current()));
  }
  PENSTOCK_RETURN_IF_ERROR(DrainEdges());
  return GatherEvaluation();
}

absl::Status Executor::GatherEvaluation() {
  const Topology& topology = parts_.topology;
  const auto replicas =
      std::find_if(topology.groups.begin(), topology.groups.end(), [&](const ReduceGroup& group) {
        return topology.IsOfReplicas(group) && topology[group.stages.front()].last;
      });
  if (replicas == topology.groups.end()) return absl::OkStatus();
  const bool is_here = std::any_of(replicas->stages.begin(), replicas->stages.end(),
                                   [&](StageId stage) { return FindLocal(stage) != nullptr; });
  if (!is_here) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(parts_.collectives.GatherLosses(*replicas, parts_.job.validation_batches,
                                                           EvaluationSums::kNumbers, losses_.own(),
                                                           losses_.all(), courier_, timer_));
  losses_.AddAllEvaluated();
  return absl::OkStatus();
}

absl::StatusOr<bool> Executor::EnterGate(int64_t microbatch, MicrobatchRange& range) {
  // Being held is not training.
  PENSTOCK_ASSIGN_OR_RETURN(const HoldGate::Passage passage, parts_.gate.Enter(microbatch, [this] {
    window_.Close();
    HidePulse();
  }));
  if (passage.waited) {
    timer_.Pause();
    window_.Open();
    ShowPulse();
  }
  if (!passage.cut) return true;
  range.count = passage.cut_step * parts_.job.microbatches - range.first;
  return false;
}

absl::Status Executor::SwapProgram(Program& program, ProgramCursor& cursor,
                                   MicrobatchRange shorter) {
  PENSTOCK_ASSIGN_OR_RETURN(WorkerProgram whole, parts_.training_program(shorter));
  Program& replacement = whole.program;
  const int64_t done = cursor.position();
  for (int64_t i = 0; i < done; ++i) {
    if (i < replacement.size() && program.At(i) == replacement.At(i)) continue;
    return absl::InternalError(absl::StrCat(
        "cannot cut ", parts_.job.method->name, " short after ", done, " actions: action ", i,
        " of the shorter program is another one than ", ToString(program.At(i))));
  }
  program = std::move(replacement);
  cursor = ProgramCursor(program);
  while (cursor.position() < done) cursor.Advance();
  return absl::OkStatus();
}

absl::Status Executor::Perform(const Action& action) {
  PENSTOCK_ASSIGN_OR_RETURN(const Effect effect, machine_.Apply(action));
  PENSTOCK_RETURN_IF_ERROR(timer_.Begin(action,
                                        training_ ? MeteredStage(action).meter.get() : nullptr,
                                        awaited_.until_ns - awaited_.since_ns));
  if (awaited_.until_ns > 0) {
    timer_.Waited(awaited_.since_ns, awaited_.until_ns, Wait::kInput);
    awaited_ = {};
  }
  PENSTOCK_RETURN_IF_ERROR(Dispatch(action, effect));
  timer_.End();
  if (parts_.collectives.has_begun()) PENSTOCK_RETURN_IF_ERROR(parts_.collectives.GoOn(courier_));
  actions_done_.Add(1);
  courier_.pulse().Beat();
  PENSTOCK_FAULT_POINT_STATUS(kExecutorAfterAction);
  return absl::OkStatus();
}

absl::Status Executor::Dispatch(const Action& action, const Effect& effect) {
  const StageId stage = action.stage();
  const int64_t microbatch = action.microbatch;
  switch (action.kind) {
    case ActionKind::kRecvActivation:
      return Receive(action, Local(stage).inputs);
    case ActionKind::kForward:
      return Forward(Local(stage), microbatch, effect);
    case ActionKind::kSendActivation:
      return SendCoded(action, Local(stage).outputs.Take(microbatch),
                       Local(stage).coders.activations.get());
    case ActionKind::kRecvGradient:
      return Receive(action, Local(stage).output_gradients);
    case ActionKind::kRecompute:
      return Recompute(Local(stage), microbatch, effect);
    case ActionKind::kBackwardInput:
      return BackwardInput(Local(stage), microbatch, effect);
    case ActionKind::kBackwardWeight:
      return BackwardWeight(Local(stage), microbatch, effect);
    case ActionKind::kSendGradient:
      return SendCoded(action, Local(stage).input_gradients.Take(microbatch),
                       Local(stage).coders.gradients.get());
    case ActionKind::kSendCheckpoint:
      return SendInput(action, Local(stage));
    case ActionKind::kRecvCheckpoint:
      return ReceiveInput(action, Local(stage));
    case ActionKind::kOffload:
      return Offload(Local(stage), microbatch);
    case ActionKind::kEvict:
      return Evict(Local(stage), microbatch);
    case ActionKind::kPrefetch:
      return Prefetch(Local(stage), microbatch);
    case ActionKind::kSendSum:
      return SendSum(action, Local(stage), effect.sum_in_file);
    case ActionKind::kRecvSum:
      return ReceiveSum(action, Local(stage));
    case ActionKind::kSendRequest:
      return SendRequest(action);
    case ActionKind::kRecvRequest:
      return ReceiveRequest(action);
    case ActionKind::kSendWeights:
      return SendWeights(action, effect);
    case ActionKind::kRecvWeights:
      return ReceiveWeights(action, effect);
    case ActionKind::kDropWeights:
      return DropWeights(Local(stage), effect.sum_in_file);
    case ActionKind::kLoadWeights:
      return LoadWeights(Local(stage));
    case ActionKind::kBeginReduce:
      return BeginReduce(action.group());
    case ActionKind::kReduce:
      return Reduce(action.group(), effect);
    case ActionKind::kNorm:
      return Norm(action.index);
    case ActionKind::kUpdate:
      return Step(Local(stage), effect);
    case ActionKind::kFlush:
      return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("unknown action ", ToString(action)));
}

Shape Executor::ShapeOfReceived(const Action& action) {
  const Stage& stage = *Local(action.stage()).stage;
  return action.kind == ActionKind::kRecvGradient ? stage.grad_output_shape() : stage.input_shape();
}

absl::Status Executor::Receive(const Action& action, TensorTable& table) {
  const DType dtype = Local(action.stage()).stage->crossing_type();
  const Shape shape = ShapeOfReceived(action);
  const MessageCompression compression = training_ ? parts_.job.compression : MessageCompression();
  PENSTOCK_ASSIGN_OR_RETURN(Tensor tensor,
                            ReceiveTensor(action, MessageType(compression, dtype, shape),
                                          MessageShape(compression, dtype, shape)));
  if (compression.any()) {
    absl::StatusOr<Tensor> decoded =
        Decode(parts_.backend.pool(), compression, std::move(tensor), dtype, shape);
    if (!decoded.ok()) return DecodeError(action, decoded.status());
    tensor = *std::move(decoded);
    timer_.Lap(Lane::kReceive);
  }
  table.Put(action.microbatch, std::move(tensor));
  return absl::OkStatus();
}

absl::Status Executor::DecodeError(const Action& action, const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) {
    failed_peer_ =
        parts_.topology.worker(parts_.topology.edges[parts_.topology.EdgeOf(action)].from);
  }
  return Annotate(status, absl::string_view(ToString(action)));
}

absl::Status Executor::SendCoded(const Action& action, const Tensor& tensor, MessageCoder* coder) {
  if (coder == nullptr || !training_) return Send(action, tensor);
  const absl::StatusOr<Tensor> message = coder->Encode(tensor);
  if (absl::IsFailedPrecondition(message.status())) {
    return NoteNotFinite(MessageNotFinite(StepOf(action.microbatch), action.stage().value));
  }
  PENSTOCK_RETURN_IF_ERROR(message.status());
  timer_.Lap(Lane::kSend);
  return Send(action, *message);
}

absl::StatusOr<Tensor> Executor::ReceiveTensor(const Action& action, DType dtype,
                                               const Shape& shape) {
  const int32_t edge = parts_.topology.EdgeOf(action);
  Receiver& receiver = *parts_.edges.receivers[edge];
  const bool waits = !receiver.Ready();
  timer_.StartCopy(CopyDirection::kToDevice);
  absl::StatusOr<Courier::Received> received =
      courier_.Receive(receiver, {action.microbatch, dtype, shape}, Deadline());
  if (!received.ok()) {
    return EdgeError(action, parts_.topology.edges[edge].from, received.status());
  }
  if (waits) {
    timer_.Lap(Lane::kWait, Wait::kInput);
  } else {
    if (!received->fetched) timer_.EndCopy(CopyDirection::kToDevice);
    timer_.Lap(Lane::kReceive);
  }
  return std::move(received->tensor);
}

absl::Status Executor::Send(const Action& action, const Tensor& tensor) {
  const int32_t edge = parts_.topology.EdgeOf(action);
  Sender& sender = *parts_.edges.senders[edge];
  const bool waits = !sender.Ready();
  timer_.StartCopy(CopyDirection::kToHost);
  const absl::Status status = courier_.Send(sender, action.microbatch, tensor, Deadline());
  if (!status.ok()) return EdgeError(action, parts_.topology.edges[edge].to, status);
  if (waits) {
    timer_.Lap(Lane::kWait, Wait::kCredit);
  } else {
    if (!sender.exports()) timer_.EndCopy(CopyDirection::kToHost);  // exported: not copied
    timer_.Lap(Lane::kSend);
  }
  return absl::OkStatus();
}

absl::Status Executor::EdgeError(const Action& action, StageId other, const absl::Status& status) {
  if (courier_.peer_failed()) failed_peer_ = parts_.topology.worker(other);
  return Annotate(status, absl::string_view(ToString(action)));
}

absl::Status Executor::DrainEdges() {
  return Annotate(courier_.Drain(Deadline()), "waiting for the last tensors of a range");
}

absl::Status Executor::Forward(LocalStage& local, int64_t microbatch, const Effect& effect) {
  PENSTOCK_RETURN_IF_ERROR(AwaitWeights(local));
  if (!training_) return ForwardToEvaluate(local, microbatch, effect);
  Stage& stage = *local.stage;
  Tensor input;
  if (!stage.is_first()) input = local.inputs.Take(microbatch);
  PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports, ReadPorts(stage, microbatch));

  const MicrobatchStart start = ports_.StartOf(stage, split(), FirstSample(parts_.job, microbatch));
  absl::StatusOr<Tensor> output = stage.Forward(
      MicrobatchId(microbatch), start, {effect.version, effect.ahead}, std::move(input), ports);
  ports_.Forget();
  if (!output.ok()) return output.status();
  // There and back the first stage keeps nothing: its ports are read again where the forward is done again.
  if (!parts_.topology[local.id].backward && parts_.topology[local.id].first) {
    PENSTOCK_RETURN_IF_ERROR(stage.TakeInput(MicrobatchId(microbatch)).status());
  }
  last_microbatch_ = microbatch;
  PENSTOCK_RETURN_IF_ERROR(PutOutput(local, microbatch, *std::move(output)));
  return EndPass(ActionKind::kForward, local);
}

absl::Status Executor::ForwardToEvaluate(LocalStage& local, int64_t microbatch,
                                         const Effect& effect) {
  Stage& stage = *local.stage;
  Tensor input;
  if (!stage.is_first()) input = local.inputs.Take(microbatch);
  PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports, ReadPorts(stage, microbatch));

  const MicrobatchStart start = ports_.StartOf(stage, split(), FirstSample(parts_.job, microbatch));
  absl::StatusOr<Stage::Evaluated> evaluated =
      stage.Evaluate(effect.version, std::move(input), ports, start);
  ports_.Forget();
  if (!evaluated.ok()) return evaluated.status();
  PENSTOCK_RETURN_IF_ERROR(stage.is_last()
                               ? AddEvaluated(local, microbatch, *evaluated)
                               : PutOutput(local, microbatch, std::move(evaluated->output)));
  return EndPass(ActionKind::kForward, local);
}

absl::Status Executor::PutOutput(LocalStage& local, int64_t microbatch, Tensor output) {
  if (LocalStage* next =
          FindLocal(parts_.topology.To(EdgeKind::kActivation, local.id, microbatch))) {
    next->inputs.Put(microbatch, std::move(output));
    return absl::OkStatus();
  }
  if (!local.stage->is_last()) {
    local.outputs.Put(microbatch, std::move(output));
    return absl::OkStatus();
  }
  PENSTOCK_ASSIGN_OR_RETURN(Outgoing loss, parts_.backend.StartToHost(output));
  local.losses.Put(microbatch, std::move(loss));  // read after I, when the device is done with it
  return absl::OkStatus();
}

absl::Status Executor::Recompute(LocalStage& local, int64_t microbatch, const Effect& effect) {
  PENSTOCK_RETURN_IF_ERROR(AwaitWeights(local));
  Stage& stage = *local.stage;
  if (parts_.topology[local.id].ends_way_back) {
    PENSTOCK_RETURN_IF_ERROR(
        stage.PutInput(MicrobatchId(microbatch), FirstSample(parts_.job, microbatch), Tensor()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports, ReadPorts(stage, microbatch));
  const absl::Status done =
      stage.Recompute(MicrobatchId(microbatch), {effect.version, effect.ahead}, ports);
  ports_.Forget();
  PENSTOCK_RETURN_IF_ERROR(done);
  return EndPass(ActionKind::kRecompute, local);
}

absl::Status Executor::Offload(LocalStage& local, int64_t microbatch) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t bytes, local.stage->Offload(MicrobatchId(microbatch)));
  local.meter->figure(v1::StageReport::kOffloadedBytesFieldNumber).Add(bytes);
  timer_.Lap(Lane::kSend);
  return absl::OkStatus();
}

absl::Status Executor::Evict(LocalStage& local, int64_t microbatch) {
  PENSTOCK_ASSIGN_OR_RETURN(const CopySpan span, local.stage->Evict(MicrobatchId(microbatch)));
  timer_.Lap(Lane::kWait, Wait::kHost);
  timer_.Beside(Lane::kOffload, span.start_ns, span.end_ns);
  return absl::OkStatus();
}

absl::Status Executor::Prefetch(LocalStage& local, int64_t microbatch) {
  PENSTOCK_RETURN_IF_ERROR(local.stage->Prefetch(MicrobatchId(microbatch)));
  timer_.Lap(Lane::kReceive);
  return absl::OkStatus();
}

absl::Status Executor::BackwardInput(LocalStage& local, int64_t microbatch, const Effect& effect) {
  PENSTOCK_RETURN_IF_ERROR(AwaitWeights(local));
  Stage& stage = *local.stage;
  if (local.offloads) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<CopySpan> copy,
                              stage.FinishPrefetch(MicrobatchId(microbatch)));
    if (copy.has_value()) {
      timer_.Lap(Lane::kWait, Wait::kHost);
      timer_.Beside(Lane::kPrefetch, copy->start_ns, copy->end_ns);
    }
  }
  Tensor output_gradient = stage.is_last() ? Tensor() : local.output_gradients.Take(microbatch);
  float loss_scale = 1.0f;  // read where the gradient starts
  if (stage.is_last()) {
    PENSTOCK_ASSIGN_OR_RETURN(loss_scale,
                              ReadData([&] { return valid_targets_.LossScale(microbatch); }));
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      Tensor input_gradient,
      stage.BackwardInput(MicrobatchId(microbatch), {effect.version, effect.ahead},
                          std::move(output_gradient), loss_scale));
  if (LocalStage* next = FindLocal(parts_.topology.To(EdgeKind::kGradient, local.id, microbatch))) {
    next->output_gradients.Put(microbatch, std::move(input_gradient));
  } else if (!stage.is_first()) {
    local.input_gradients.Put(microbatch, std::move(input_gradient));
  }
  PENSTOCK_RETURN_IF_ERROR(EndPass(ActionKind::kBackwardInput, local));
  return stage.is_last() ? AddLoss(local, microbatch, local.losses.Take(microbatch))
                         : absl::OkStatus();
}

absl::Status Executor::BackwardWeight(LocalStage& local, int64_t microbatch, const Effect& effect) {
  PENSTOCK_RETURN_IF_ERROR(effect.completes.value < 0
                               ? local.stage->BackwardWeight(MicrobatchId(microbatch))
                               : LastBackwardWeight(local, microbatch, effect));
  last_microbatch_ = microbatch;
  return EndPass(ActionKind::kBackwardWeight, local);
}

absl::Status Executor::LastBackwardWeight(LocalStage& local, int64_t microbatch,
                                          const Effect& effect) {
  const GroupId id = effect.completes;
  PENSTOCK_ASSIGN_OR_RETURN(
      const Collectives::Combine combine,
      CombineOf(parts_.topology.groups[id.value], local, effect.microbatches));
  const int64_t start_ns = timer_.lap_start_ns();
  return local.stage->BackwardWeight(MicrobatchId(microbatch), [&](int layer) -> absl::Status {
    if (parts_.emulation != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(parts_.emulation->AwaitLayer(local.id, layer, start_ns));
    }
    return parts_.collectives.LayerDone(id, layer, combine, courier_);
  });
}

absl::Status Executor::EndPass(ActionKind kind, const LocalStage& local) {
  if (training_ && parts_.emulation != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(parts_.emulation->Await(kind, local.id, timer_.lap_start_ns()));
  }
  timer_.Lap(Lane::kCompute);
  if (training_) local.meter->PublishLive(machine_.counts(local.id));
  return absl::OkStatus();
}

absl::Status Executor::SendInput(const Action& action, LocalStage& local) {
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor input,
                            local.stage->TakeInput(MicrobatchId(action.microbatch)));
  return Send(action, input);
}

absl::Status Executor::ReceiveInput(const Action& action, LocalStage& local) {
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor input, ReceiveTensor(action, local.stage->crossing_type(),
                                                              local.stage->input_shape()));
  return local.stage->PutInput(MicrobatchId(action.microbatch),
                               FirstSample(parts_.job, action.microbatch), input);
}

absl::Status Executor::SendSum(const Action& action, LocalStage& local, bool from_file) {
  Stage& stage = *local.stage;
  const int64_t gradients = stage.gradient_count();
  PENSTOCK_ASSIGN_OR_RETURN(
      const Tensor sum,
      AcquireTensor(parts_.backend.pool(), DType::kF32, {SumFloats(gradients, stage.is_last())}));
  if (!from_file) {
    stage.TakeGradients(sum.data<float>());
  } else if (gradients > 0) {
    PENSTOCK_RETURN_IF_ERROR(NoteCopy(Lane::kPrefetch, parts_.state_file->BringSum(stage, sum)));
    CountFileBytes(local, StateFile::BytesOfSum(stage), 0);
  }
  if (stage.is_last()) {
    const double losses = losses_.Take(StepOf(action.microbatch));
    parts_.backend.CopyToDevice(sum.data<float>() + gradients, &losses, sizeof(losses));
  }
  return Send(action, sum);
}

absl::Status Executor::ReceiveSum(const Action& action, LocalStage& local) {
  Stage& stage = *local.stage;
  const int64_t gradients = stage.gradient_count();
  PENSTOCK_ASSIGN_OR_RETURN(
      const Tensor sum,
      ReceiveTensor(action, DType::kF32, {SumFloats(gradients, stage.is_last())}));
  PENSTOCK_RETURN_IF_ERROR(stage.PutGradients(sum.data<float>()));
  if (!stage.is_last()) return absl::OkStatus();
  double losses = 0.0;
  parts_.backend.CopyToHost(&losses, sum.data<float>() + gradients, sizeof(losses));
  PENSTOCK_RETURN_IF_ERROR(parts_.backend.Synchronize());
  // The loss of the microbatch that goes on is here already; it comes after those before it.
  losses_.GoOn(StepOf(action.microbatch), losses);
  return absl::OkStatus();
}

absl::Status Executor::SendRequest(const Action& action) {
  // It says no more than that it is there.
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor request,
                            AcquireTensor(parts_.backend.pool(), DType::kF32, {kRequestFloats}));
  parts_.backend.Fill(request.data<float>(), 0.0f, kRequestFloats);
  return Send(action, request);
}

absl::Status Executor::ReceiveRequest(const Action& action) {
  PENSTOCK_RETURN_IF_ERROR(ReceiveTensor(action, DType::kF32, {kRequestFloats}).status());
  if (parts_.state_file == nullptr) return absl::OkStatus();
  LocalStage& source = Local(parts_.topology[action.stage()].source);
  PENSTOCK_ASSIGN_OR_RETURN(answers_[action.index], parts_.state_file->StartReading(*source.stage));
  CountFileBytes(source, StateFile::BytesOfWeights(*source.stage), 0);
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Executor::WeightsToSend(const Action& action, int64_t version,
                                               Stage& stage) {
  if (parts_.state_file == nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(
        Tensor weights, AcquireTensor(parts_.backend.pool(), DType::kF32, stage.weight_shape()));
    PENSTOCK_RETURN_IF_ERROR(stage.CopyAllWeights(version, weights.data<float>()));
    return weights;
  }
  const StateFile::Reading reading = std::move(answers_.extract(action.index).mapped());
  PENSTOCK_RETURN_IF_ERROR(NoteCopy(Lane::kPrefetch, parts_.state_file->Finish(reading)));
  return reading.weights;
}

absl::Status Executor::SendWeights(const Action& action, const Effect& effect) {
  Stage& stage = *Local(parts_.topology[action.stage()].source).stage;
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor weights, WeightsToSend(action, effect.version, stage));
  return Send(action, weights);
}

absl::Status Executor::ReceiveWeights(const Action& action, const Effect& effect) {
  Stage& stage = *Local(action.stage()).stage;
  PENSTOCK_ASSIGN_OR_RETURN(Tensor weights,
                            ReceiveTensor(action, DType::kF32, stage.weight_shape()));
  return stage.PutWeights(effect.version, std::move(weights));
}

absl::Status Executor::DropWeights(LocalStage& local, bool stores_sum) {
  Stage& stage = *local.stage;
  stage.DropWeights();
  if (stores_sum && stage.gradient_count() > 0) {
    PENSTOCK_RETURN_IF_ERROR(NoteCopy(Lane::kOffload, parts_.state_file->PutSum(stage)));
    CountFileBytes(local, 0, StateFile::BytesOfSum(stage));
  }
  if (training_) local.meter->Publish(machine_.counts(local.id), machine_.delays(local.id));
  return absl::OkStatus();
}

absl::Status Executor::LoadWeights(LocalStage& local) {
  PENSTOCK_ASSIGN_OR_RETURN(local.reading, parts_.state_file->StartReading(*local.stage));
  CountFileBytes(local, StateFile::BytesOfWeights(*local.stage), 0);
  timer_.Lap(Lane::kReceive);
  return absl::OkStatus();
}

absl::Status Executor::AwaitWeights(LocalStage& local) {
  if (!local.reading.has_value()) return absl::OkStatus();
  const StateFile::Reading reading = *std::exchange(local.reading, std::nullopt);
  PENSTOCK_RETURN_IF_ERROR(NoteCopy(Lane::kPrefetch, parts_.state_file->Finish(reading)));
  return local.stage->PutWeights(local.stage->version(), reading.weights);
}

absl::Status Executor::NoteCopy(Lane lane, const absl::StatusOr<CopySpan>& copied) {
  PENSTOCK_RETURN_IF_ERROR(copied.status());
  timer_.Lap(Lane::kWait, Wait::kHost);
  timer_.Beside(lane, copied->start_ns, copied->end_ns);
  return absl::OkStatus();
}

void Executor::CountFileBytes(LocalStage& local, int64_t read, int64_t written) {
  if (!training_) return;
  local.meter->figure(v1::StageReport::kFileBytesReadFieldNumber).Add(read);
  local.meter->figure(v1::StageReport::kFileBytesWrittenFieldNumber).Add(written);
}

absl::Status Executor::UpdateInFile(LocalStage& local, const Effect& effect, double learning_rate) {
  Stage& stage = *local.stage;
  StateFile& file = *parts_.state_file;
  const int64_t bytes =
      StateFile::BytesOfWeights(stage) + stage.state_count() * StateFile::BytesOfState(stage);
  PENSTOCK_RETURN_IF_ERROR(NoteCopy(Lane::kPrefetch, file.BringIn(stage, {})));
  PENSTOCK_RETURN_IF_ERROR(Update(local, effect, learning_rate));
  timer_.Lap(Lane::kCompute);
  CountFileBytes(local, bytes, bytes);
  return NoteCopy(Lane::kOffload, file.PutBack(stage));
}

absl::Status Executor::BeginReduce(GroupId id) {
  for (const StageId stage : parts_.topology.groups[id.value].stages) {
    if (LocalStage* const member = FindLocal(stage)) {
      parts_.collectives.BeginReduce(id, *member->stage);
    }
  }
  return absl::OkStatus();
}

absl::Status Executor::Reduce(GroupId id, const Effect& effect) {
  const ReduceGroup& group = parts_.topology.groups[id.value];
  const LocalStage* first = nullptr;
  members_.clear();
  for (const StageId stage : group.stages) {
    const LocalStage* member = FindLocal(stage);
    members_.push_back(member == nullptr ? nullptr : member->stage.get());
    if (first == nullptr) first = member;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Collectives::Combine combine,
                            CombineOf(group, *first, effect.microbatches));
  PENSTOCK_RETURN_IF_ERROR(parts_.collectives.Reduce(id, members_, machine_.version(first->id),
                                                     combine, courier_, timer_));
  if (parts_.topology.IsOfReplicas(group) && first->stage->is_last()) {
    PENSTOCK_RETURN_IF_ERROR(parts_.collectives.GatherLosses(group, effect.microbatches.count,
                                                             /*width=*/1, losses_.own(),
                                                             losses_.all(), courier_, timer_));
    losses_.AddAll(StepOf(effect.microbatches.first));
  }
  if (group.operation != ReduceGroup::Operation::kCopy) return absl::OkStatus();
  for (const StageId stage : group.stages) {
    LocalStage* member = FindLocal(stage);
    if (member == nullptr || parts_.topology[stage].updates) continue;
    member->meter->Publish(machine_.counts(stage), machine_.delays(stage));
  }
  if (first_copy_ == id) CountStep();
  return absl::OkStatus();
}

absl::StatusOr<Collectives::Combine> Executor::CombineOf(const ReduceGroup& group,
                                                         const LocalStage& member,
                                                         MicrobatchRange microbatches) {
  Collectives::Combine combine = {.operation = group.operation};
  if (!parts_.topology.IsOfReplicas(group)) return combine;
  // The steps before an asynchronous method begins are of another one.
  const Method& method = parts_.job.MethodAfter(StepOf(microbatches.first) - 1);
  combine.operation = GradientsCombine(method);
  const StageWiring& stage = parts_.topology[member.id];
  const bool weighs = combine.operation == ReduceGroup::Operation::kMean;
  if (!weighs || !WeighsReplicas(parts_.job, stage)) return combine;
  // Each replica has one microbatch of the update.
  PENSTOCK_ASSIGN_OR_RETURN(combine.weight, ReadData([&] {
                              return valid_targets_.Part(microbatches.first + stage.replica,
                                                         microbatches);
                            }));
  return combine;
}

absl::Status Executor::Norm(int32_t index) {
  for (LocalStage& local : parts_.stages) {
    if (!parts_.topology.IsInNorm(local.id, index)) continue;
    local.stage->CombineUses();
    PENSTOCK_RETURN_IF_ERROR(local.stage->LayerSquaredNorms(
        absl::MakeSpan(layer_norms_).subspan(local.layers.first, local.layers.count)));
  }
  PENSTOCK_RETURN_IF_ERROR(
      parts_.collectives.CombineNorms(absl::MakeSpan(layer_norms_), courier_, timer_));
  // All workers see the same numbers, so all name the same culprit.
  for (size_t stage = 0; stage < parts_.layers.size(); ++stage) {
    if (!parts_.topology.IsInNorm(StageId(static_cast<int32_t>(stage)), index)) continue;
    const LayerRange layers = parts_.layers[stage];
    PENSTOCK_RETURN_IF_ERROR(NoteNotFinite(
        CheckNorms(parts_.job.model, layers,
                   absl::MakeConstSpan(layer_norms_).subspan(layers.first, layers.count),
                   StepOf(last_microbatch_), static_cast<int32_t>(stage))));
  }
  gradient_norm_ = CombinedNorm(layer_norms_);
  return absl::OkStatus();
}

absl::Status Executor::Update(LocalStage& local, const Effect& effect, double learning_rate) {
  const ResolvedJob& job = parts_.job;
  local.stage->CombineUses();
  if (CompensatesDelay(job, effect.version, effect.read_version)) {
    PENSTOCK_RETURN_IF_ERROR(
        local.stage->CompensateDelay(effect.read_version, job.staleness.delay_compensation));
  }
  PENSTOCK_RETURN_IF_ERROR(ClipFactorsOf(local, StepOf(effect.microbatches.end() - 1)));
  return local.stage->Step(
      effect.version,
      {.learning_rate = learning_rate,
       .gradient_scales = local.gradient_scales,
       .keep_replaced = effect.keeps_replaced,
       .oldest_live_version = effect.oldest_live_version,
       .average_keep = AverageKept(job, effect.microbatches.count, parts_.topology.pipelines),
       .feed_back = FeedsBack(job, effect.version, effect.read_version)});
}

absl::Status Executor::Step(LocalStage& local, const Effect& effect) {
  const double learning_rate = RateOfUpdate(parts_.job, local.lateness, effect.microbatches);
  PENSTOCK_FAULT_POINT_STATUS(kExecutorBeforeUpdate);
  PENSTOCK_RETURN_IF_ERROR(
      !effect.moves ? local.stage->KeepWeights(effect.version, effect.oldest_live_version)
      : parts_.state_file != nullptr ? UpdateInFile(local, effect, learning_rate)
                                     : Update(local, effect, learning_rate));
  PENSTOCK_FAULT_POINT_STATUS(kExecutorAfterUpdate);
  PENSTOCK_RETURN_IF_ERROR(EndPass(ActionKind::kUpdate, local));
  local.meter->Publish(machine_.counts(local.id), machine_.delays(local.id));
  local.meter->figure(v1::StageReport::kUpdatesFieldNumber)
      .Set(effect.version - local.first_version);
  const Stage::MemoryStats memory = local.stage->memory();
  local.meter->PublishStash(memory.weight_bytes - memory.version_bytes, memory.host_stash_bytes);
  if (parts_.job.cuda_graphs) PublishGraphs(local);
  const bool ends_step = effect.microbatches.end() % parts_.job.microbatches == 0;
  if (ends_step && local.id == parts_.topology.TellsSteps()) {
    PENSTOCK_RETURN_IF_ERROR(ReportStep(effect, learning_rate));
  }
  if (ends_step && !first_copy_.has_value() && &local == &StepCounter()) CountStep();
  return absl::OkStatus();
}

void Executor::PublishGraphs(LocalStage& local) {
  const PassGraphs::Stats graphs = local.stage->graph_stats();
  local.meter->PublishGraphs(graphs);
  if (graphs.given_up.empty() || local.told_of_graphs) return;
  local.told_of_graphs = true;
  parts_.notice(absl::StrCat("stage ", local.id.value,
                             " goes on without training.cuda_graphs: ", graphs.given_up));
}

absl::Status Executor::ClipFactorsOf(LocalStage& local, int64_t step) {
  const Clip& clip = parts_.job.clip;
  const absl::Span<double> norms = absl::MakeSpan(local.squared_norms);
  if (clip.kind == Clip::Kind::kLayerNorm) {
    const absl::Span<double> own = norms.subspan(local.layers.first, local.layers.count);
    PENSTOCK_RETURN_IF_ERROR(local.stage->LayerSquaredNorms(own));
    PENSTOCK_RETURN_IF_ERROR(
        NoteNotFinite(CheckNorms(parts_.job.model, local.layers, own, step, local.id.value)));
    for (const int owner : local.owners_before) {
      norms[owner] = parts_.collectives.owner_squared_norm(owner);
    }
  }
  ClipFactors(clip, norms, gradient_norm_, absl::MakeSpan(local.gradient_scales));
  return absl::OkStatus();
}

absl::Status Executor::AddLoss(LocalStage& local, int64_t microbatch, Outgoing outgoing) {
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor host, parts_.backend.FinishToHost(std::move(outgoing)));
  const double loss = *host.data<float>();
  PENSTOCK_ASSIGN_OR_RETURN(const double weight, ReadData([&] {
                              return valid_targets_.Weight(Split::kTraining, microbatch);
                            }));
  if (parts_.topology[local.id].replicas > 1) {
    losses_.Keep(loss * weight);
  } else {
    losses_.Add(StepOf(microbatch), loss * weight);
  }
  return NoteNotFinite(CheckLoss(loss, StepOf(microbatch), local.id.value));
}

absl::Status Executor::AddEvaluated(LocalStage& local, int64_t microbatch,
                                    const Stage::Evaluated& last) {
  PENSTOCK_ASSIGN_OR_RETURN(const double loss, local.stage->ReadLoss(last.output));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> ranks, local.stage->ReadRanks(last.ranks));
  PENSTOCK_ASSIGN_OR_RETURN(const double weight, ReadData([&] {
                              return valid_targets_.Weight(Split::kValidation, microbatch);
                            }));
  const EvaluationSums sums = EvaluationSums::Of(loss, weight, ranks);
  if (parts_.topology[local.id].replicas > 1) {
    losses_.KeepEvaluated(sums);
  } else {
    losses_.AddEvaluated(sums);
  }
  return NoteNotFinite(CheckLoss(loss, evaluated_step_, local.id.value));
}

absl::Status Executor::NoteNotFinite(absl::Status checked) {
  not_finite_ = not_finite_ || !checked.ok();
  return checked;
}

absl::Status Executor::ReportStep(const Effect& effect, double learning_rate) {
  const int64_t step = StepOf(effect.microbatches.end() - 1);
  PENSTOCK_ASSIGN_OR_RETURN(const double weight, ReadData([&] {
                              return valid_targets_.Weight(Split::kTraining,
                                                           RangeOfStep(parts_.job, step));
                            }));
  parts_.on_step({.step = step,
                  .loss = losses_.Take(step) / std::max(weight, 1.0),
                  .learning_rate = learning_rate,
                  .gradient_norm = gradient_norm_});
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const Tensor>> Executor::ReadPorts(Stage& stage, int64_t microbatch) {
  absl::StatusOr<absl::Span<const Tensor>> ports =
      ReadData([&] { return ports_.Read(stage, split(), FirstSample(parts_.job, microbatch)); });
  if (!stage.ports().empty()) timer_.Lap(Lane::kWait, Wait::kData);
  return ports;
}

LocalStage* Executor::FindLocal(StageId stage) {
  if (stage.value < 0 || stage.value >= parts_.topology.stages()) return nullptr;
  const int32_t index = local_index_[stage.value];
  return index < 0 ? nullptr : &parts_.stages[index];
}

LocalStage& Executor::MeteredStage(const Action& action) {
  if (ServesWeights(action.kind)) return Local(parts_.topology[action.stage()].source);
  const bool has_stage = HasMicrobatch(action.kind) || action.kind == ActionKind::kUpdate;
  return has_stage ? Local(action.stage()) : parts_.stages.front();
}

absl::Time Executor::Deadline() const {
  return parts_.clock.WallTime() + parts_.limits.receive_timeout(parts_.topology.depth());
}

std::optional<WorkerId> Executor::failed_peer() const {
  return failed_peer_.has_value() ? failed_peer_ : parts_.collectives.failed_peer();
}

const LocalStage& Executor::StepCounter() const {
  const auto found =
      std::find_if(parts_.stages.begin(), parts_.stages.end(), [this](const LocalStage& local) {
        const bool ends = !parts_.topology.streams_weights || parts_.topology[local.id].updates;
        return ends && parts_.topology.Visits(parts_.job.microbatches - 1, local.id);
      });
  // A worker holds its stages of every pipeline, or one replica, which takes part in every update.
  return found == parts_.stages.end() ? parts_.stages.front() : *found;
}

void Executor::CountStep() {
  const int64_t window_ns = window_.NsAt(timer_.lap_start_ns());
  for (LocalStage& local : parts_.stages) local.meter->EndStep(window_ns);
  if (++steps_done_ == kWarmUpSteps) {
    allocations_at_start_ = parts_.backend.pool().stats().allocations;
    ShowPulse();
  }
}

void Executor::BeginWindow() {
  timer_.Pause();
  window_.Open();
  allocations_at_start_ = parts_.backend.pool().stats().allocations;
  ShowPulse();
}

void Executor::ShowPulse() {
  courier_.pulse().Show(steps_done_ >= kWarmUpSteps ? Pulse::Shows::kSteady
                                                    : Pulse::Shows::kUnsteady);
}

void Executor::EndWindow() {
  window_.Close();
  if (steps_done_ >= kWarmUpSteps) {
    allocations_steady_.Add(parts_.backend.pool().stats().allocations - allocations_at_start_);
  }
}

}  // namespace penstock
