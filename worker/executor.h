// Executor: performs a worker's program, action by action, in list order and never otherwise; or, in recorded
// order, whatever is ready (TrainAsReady), and notes what that was.
//
// For each action it asks the machine, which holds the rules (schedule/machine.h), and then does the
// real work: take a tensor from a mailbox, run a stage, hand a tensor over. It makes no choice of its
// own, so what it computes does not depend on timing.
//
// A range can be cut short while it runs (hold_gate.h). The program of the shorter range has the same
// actions up to the first that begins a microbatch beyond the cut: catalog schedules place a
// microbatch's actions by its distance from those before it, and a shorter range only leaves out
// microbatches at the end (moves of stashes just before that action belong to it: offload.h). So the executor swaps the program under its cursor at that action. The swap
// checks this for the actions already performed.
//
// Thread safety: the thread that owns the back-end, except where stated.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "compute/backend.h"
#include "job/resolve.h"
#include "schedule/machine.h"
#include "schedule/order_log.h"
#include "schedule/program.h"
#include "schedule/ready_order.h"
#include "worker/action_timer.h"
#include "worker/collectives.h"
#include "worker/counter.h"
#include "worker/courier.h"
#include "worker/doorbell.h"
#include "worker/emulation.h"
#include "worker/evaluation.h"
#include "worker/hold_gate.h"
#include "worker/limits.h"
#include "worker/local_stage.h"
#include "worker/loss_ledger.h"
#include "worker/port_reader.h"
#include "worker/stage_edges.h"
#include "worker/state_file.h"
#include "worker/training_window.h"
#include "worker/update_rule.h"
#include "worker/valid_targets.h"

namespace penstock {

// A worker's actions over a range, and the weights it does them with.
struct WorkerProgram {
  Program program;
  WeightPolicy weight_policy;
};

// The objects that an executor works with. Everything referred to outlives it.
struct ExecutorParts {
  const ResolvedJob& job;
  const Topology& topology;
  const std::vector<LayerRange>& layers;  // by stage, all workers'
  WorkerId worker;
  const RunLimits& limits;
  Clock& clock;
  Backend& backend;
  const DataSource* data;  // null if no stage of this worker reads data
  HoldGate& gate;
  TimelineRecorder& recorder;
  DeviceSpans* device_spans;   // null where the host's clock tells the device's time
  DeviceEmulation* emulation;  // null: passes take what they take
  Collectives& collectives;
  StateFile* state_file;            // null: weights and state are in memory
  std::vector<LocalStage>& stages;  // this worker's, ascending
  StageEdges& edges;
  // In recorded order: the bell that wakes it, and the bounds of schedule/ready_order.h by stage.
  // Null and empty otherwise.
  Doorbell* bell = nullptr;
  std::vector<int64_t> in_flight_max = {};
  // This worker's program over a training range.
  std::function<absl::StatusOr<WorkerProgram>(MicrobatchRange)> training_program;
  // Called on the worker with the last stage.
  std::function<void(const StepResult&)> on_step;
  std::function<void(const std::string&)> notice;  // as RunEnvironment's
};

class Executor {
 public:
  explicit Executor(const ExecutorParts& parts);

  // Trains over `range`, or until it is cut short. Returns the range that was done; its count may be 0.
  //
  // Errors: those of the transport; FailedPrecondition (the loss is not finite, or with clipping a
  // gradient, or the program breaks a rule); DeadlineExceeded (a wait took too long); the reason that
  // the gate was cancelled with.
  absl::StatusOr<MicrobatchRange> Train(MicrobatchRange range);

  // In recorded order: what Train did last. REQUIRES: it was called.
  const OrderLog& order_log() const { return order_log_; }

  // Runs an evaluation program. Returns what it came to over its microbatches where the last stage is on
  // this worker (of replicas, the first), else nothing. `step`: steps done, for messages. Errors: as Train.
  absl::StatusOr<Evaluation> Evaluate(const Program& program, int64_t step);
  // Returns the loss of the worker that has the last evaluation's, to all. REQUIRES: job.stop_after > 0.
  absl::StatusOr<double> ShareLoss(double loss);

  // The worker at the other end of the message that failed.
  std::optional<WorkerId> failed_peer() const;
  // Returns whether a loss or gradient was not finite.
  bool not_finite() const { return not_finite_; }

  // From any thread: ends waits for the device at the end of a range. The first reason counts.
  void Cancel(const absl::Status& reason) { courier_.Cancel(reason); }

  // From any thread: actions performed; time spent training so far, waits at a held gate left out;
  // blocks taken from the system by training after its second step.
  int64_t actions_done() const { return actions_done_.value(); }
  // Its sign of life (pulse.h).
  int64_t pulse() const { return courier_.pulse().value(); }
  int64_t unsteady_pulse() const { return courier_.pulse().unsteady_value(); }
  int64_t window_ns() const { return window_.ns(); }
  int64_t allocations_steady() const { return allocations_steady_.value(); }

 private:
  // Train in list order, and as things are ready. `range` may be cut short.
  absl::Status TrainInOrder(MicrobatchRange& range);
  absl::Status TrainAsReady(MicrobatchRange& range);
  // The next block; nothing where the range ended meanwhile. Waits for it.
  absl::StatusOr<std::optional<OrderBlock>> AwaitBlock(ReadyOrder& order, MicrobatchRange& range);
  absl::Status PerformBlock(const OrderBlock& block, ReadyOrder& order);

  absl::Status PerformAll(const Program& evaluation);
  absl::Status Perform(const Action& action);
  absl::Status Dispatch(const Action& action, const Effect& effect);

  absl::Status Receive(const Action& action, TensorTable& table);
  // A message of `shape`, whatever becomes of its tensor.
  absl::StatusOr<Tensor> ReceiveTensor(const Action& action, DType dtype, const Shape& shape);
  absl::Status Send(const Action& action, const Tensor& tensor);
  // The same through `coder`, if there is one and this is training.
  absl::Status SendCoded(const Action& action, const Tensor& tensor, MessageCoder* coder);
  Receiver& ReceiverOf(const Action& receive) const {
    return *parts_.edges.receivers[parts_.topology.EdgeOf(receive)];
  }
  // Of a message that makes no tensor: names the stage that sent it as what failed.
  absl::Status DecodeError(const Action& action, const absl::Status& status);
  // Names the stage at the other end of an edge as what failed, if it was.
  absl::Status EdgeError(const Action& action, StageId other, const absl::Status& status);
  absl::Status Forward(LocalStage& local, int64_t microbatch, const Effect& effect);
  absl::Status ForwardToEvaluate(LocalStage& local, int64_t microbatch, const Effect& effect);
  absl::Status Recompute(LocalStage& local, int64_t microbatch, const Effect& effect);
  // Moves of a stash between the device and the host.
  absl::Status Offload(LocalStage& local, int64_t microbatch);
  absl::Status Evict(LocalStage& local, int64_t microbatch);
  absl::Status Prefetch(LocalStage& local, int64_t microbatch);
  absl::Status BackwardInput(LocalStage& local, int64_t microbatch, const Effect& effect);
  absl::Status BackwardWeight(LocalStage& local, int64_t microbatch, const Effect& effect);
  // The same of the last W before the REDUCE of effect.completes: what it finishes leaves while it goes on.
  absl::Status LastBackwardWeight(LocalStage& local, int64_t microbatch, const Effect& effect);
  absl::Status SendInput(const Action& action, LocalStage& local);
  absl::Status ReceiveInput(const Action& action, LocalStage& local);
  // The gradients accumulated so far; of the last part also the losses of the step so far.
  // `from_file`: the sum waits there.
  absl::Status SendSum(const Action& action, LocalStage& local, bool from_file);
  absl::Status ReceiveSum(const Action& action, LocalStage& local);
  // Streamed weights.
  absl::Status SendRequest(const Action& action);
  absl::Status ReceiveRequest(const Action& action);
  absl::Status SendWeights(const Action& action, const Effect& effect);
  absl::StatusOr<Tensor> WeightsToSend(const Action& action, int64_t version, Stage& stage);
  // Those that live in the file of this worker: begins to read them for the passes of a stage, and waits for that.
  absl::Status LoadWeights(LocalStage& local);
  absl::Status AwaitWeights(LocalStage& local);
  // An update of what is in the file.
  absl::Status UpdateInFile(LocalStage& local, const Effect& effect, double learning_rate);
  void CountFileBytes(LocalStage& local, int64_t read, int64_t written);
  absl::Status ReceiveWeights(const Action& action, const Effect& effect);
  absl::Status DropWeights(LocalStage& local, bool stores_sum);
  absl::Status BeginReduce(GroupId id);
  absl::Status Reduce(GroupId id, const Effect& effect);
  absl::Status GatherEvaluation();
  // At the end of a range: what the replicas of each stage here keep beside their weights.
  absl::Status CombineBuffers();
  // `index`: that of the action.
  absl::Status Norm(int32_t index);
  absl::Status Step(LocalStage& local, const Effect& effect);
  absl::Status Update(LocalStage& local, const Effect& effect, double learning_rate);
  // What the file says of a copy that was waited for.
  absl::Status NoteCopy(Lane lane, const absl::StatusOr<CopySpan>& copied);
  // The arithmetic of a pass is done. Errors: those of DeviceEmulation.
  absl::Status EndPass(ActionKind kind, const LocalStage& local);

  // Waits at the gate before the first action of a microbatch. Returns false if the range ends here.
  absl::StatusOr<bool> EnterGate(int64_t microbatch, MicrobatchRange& range);
  absl::Status SwapProgram(Program& program, ProgramCursor& cursor, MicrobatchRange shorter);

  // Until the next call, or ports_.Forget().
  absl::StatusOr<absl::Span<const Tensor>> ReadPorts(Stage& stage, int64_t microbatch);
  Split split() const { return training_ ? Split::kTraining : Split::kValidation; }
  Shape ShapeOfReceived(const Action& action);
  // Waits until nothing of the range is under way between device and transport.
  absl::Status DrainEdges();
  // Hands the output of F on: to the next stage here, to SEND_F, or as a loss to I.
  absl::Status PutOutput(LocalStage& local, int64_t microbatch, Tensor output);
  absl::Status AddLoss(LocalStage& local, int64_t microbatch, Outgoing loss);
  absl::Status AddEvaluated(LocalStage& local, int64_t microbatch, const Stage::Evaluated& last);
  // How `group`, which may be one of replicas, combines the gradients of these microbatches.
  absl::StatusOr<Collectives::Combine> CombineOf(const ReduceGroup& group, const LocalStage& member,
                                                 MicrobatchRange microbatches);
  // Remembers the error of CheckLoss or CheckNorms.
  absl::Status NoteNotFinite(absl::Status checked);
  void PublishGraphs(LocalStage& local);
  absl::Status ClipFactorsOf(LocalStage& local, int64_t step);
  absl::Status ReportStep(const Effect& effect, double learning_rate);

  LocalStage* FindLocal(StageId stage);
  LocalStage& Local(StageId stage) { return *FindLocal(stage); }
  // The stage whose meter an action's time goes to.
  LocalStage& MeteredStage(const Action& action);
  int64_t StepOf(int64_t microbatch) const { return microbatch / parts_.job.microbatches + 1; }
  absl::Time Deadline() const;

  // Returns whether `action` is the first of its microbatch here.
  bool BeginsMicrobatch(const Action& action) const;
  // The action at `cursor`; of moves of stashes, which make room for it, the one behind them.
  static Action BehindMoves(ProgramCursor cursor);
  // The first stage of this worker that a step's last microbatch goes through and that makes an UPDATE, or its only one, a
  // replica.
  const LocalStage& StepCounter() const;
  void CountStep();
  void BeginWindow();
  void EndWindow();
  // From now on an action takes what it always takes, after the first of the run; or anything.
  void ShowPulse();
  void HidePulse() { courier_.pulse().Show(Pulse::Shows::kNot); }
  // Calls `read`, which may have to wait for a disk.
  template <typename Read>
  auto ReadData(Read read) {
    Pulse& pulse = courier_.pulse();
    const Pulse::Shows before = pulse.shows();
    if (before == Pulse::Shows::kSteady) pulse.Show(Pulse::Shows::kUnsteady);
    auto result = read();
    pulse.Show(before);
    return result;
  }

  ExecutorParts parts_;
  Machine machine_;
  ActionTimer timer_;
  Courier courier_;
  std::vector<int32_t> local_index_;  // by stage; -1 on another worker
  std::vector<Stage*> members_;       // room for those of a group
  // There and back: whose REDUCE ends a step here; none, as where weights are streamed: an UPDATE does.
  std::optional<GroupId> first_copy_;

  OrderLog order_log_;
  // When the next action was waited for before it was known which it would be; 0: it was not.
  struct Awaited {
    int64_t since_ns = 0;
    int64_t until_ns = 0;
  };
  Awaited awaited_;

  bool training_ = false;
  int64_t evaluated_step_ = 0;
  bool has_evaluated_ = false;
  LossLedger losses_;
  std::vector<double> layer_norms_;  // squared, by layer of the model
  double gradient_norm_ = 0.0;
  int64_t last_microbatch_ = 0;  // whose W was the last
  PortReader ports_;
  ValidTargets valid_targets_;
  std::map<int32_t, StateFile::Reading>
      answers_;  // by stage of another worker, from RECV_Q to SEND_P
  std::optional<WorkerId> failed_peer_;
  bool not_finite_ = false;

  Counter actions_done_;
  TrainingWindow window_{parts_.clock};
  int64_t steps_done_ = 0;  // in this run, by StepCounter()
  int64_t allocations_at_start_ = 0;
  Counter allocations_steady_;
};

}  // namespace penstock
