#include "worker/reference.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/weights_digest.h"
#include "compute/clip.h"
#include "compute/stage.h"
#include "job/early_stop.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "job/run/stage_options.h"
#include "job/run/ties.h"
#include "schedule/block_draws.h"
#include "worker/acquire.h"
#include "worker/message_coder.h"
#include "worker/open_data.h"
#include "worker/order_replay.h"
#include "worker/port_reader.h"
#include "worker/pretrained.h"
#include "worker/valid_targets.h"
#include "worker/version_rule.h"

namespace penstock {
namespace {

// The versions that forward and backward of a microbatch read.
struct VersionsRead {
  int64_t forward = 0;
  int64_t backward = 0;
};

// A stage, how many stages come before and after it, and what the microbatch in hand reads.
struct SerialStage {
  std::unique_ptr<Stage> stage;
  LayerRange layers;
  int64_t number = 0;
  // Microbatches between forward and backward: those of the stages after it, one each; with replicas, MicrobatchesInFlight.
  int64_t depth = 0;
  int64_t interval = 1;  // microbatches of an update
  int64_t base = 0;      // the version at the cut before
  std::vector<Tensor>
      sums;  // by replica, if there are several: of its microbatches since the last update
  std::vector<Tensor> statistics;  // by replica, likewise, where there are any
  bool recomputes = false;
  StageCoders coders;
  StageLateness lateness;
  WeightRead forward = 0;
  WeightRead backward = 0;
  // The reads of the microbatches since the last update, and of all before them.
  std::vector<VersionsRead> pending;
  ReferenceResult::StageReads reads;

  void CountUpdate(int64_t version);
};

void SerialStage::CountUpdate(int64_t version) {
  for (StalenessCount* count : {&reads.staleness, &reads.version_drift}) {
    ++count->updates;
    count->microbatches += static_cast<int64_t>(pending.size());
  }
  for (const VersionsRead& read : pending) {
    const int64_t late = version - read.forward;
    const int64_t drift = read.backward - read.forward;
    reads.staleness.sum += late;
    reads.staleness.max = std::max(reads.staleness.max, late);
    reads.version_drift.sum += drift;
    reads.version_drift.max = std::max(reads.version_drift.max, drift);
  }
  pending.clear();
}

// The stages of one copy of the model.
using SerialModel = std::vector<SerialStage>;

absl::Status CheckOrderFits(const RecordedOrder& order, const ResolvedJob& job,
                            const std::vector<LayerRange>& layers, absl::Span<const Cut> cuts) {
  const auto differs = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("is of another job: ", what));
  };
  const std::string weights(job.weights == nullptr ? "" : job.weights->name);
  if (order.method != job.method->name || order.weights != weights) {
    return differs(absl::StrCat("method ", order.method, " ", order.weights, ", expected ",
                                job.method->name, " ", weights));
  }
  if (order.microbatches != job.microbatches) {
    return differs(
        absl::StrCat(order.microbatches, " microbatches in a step, expected ", job.microbatches));
  }
  const Topology topology = TopologyOf(job, static_cast<int64_t>(layers.size()));
  const auto stages = static_cast<size_t>(topology.stages());
  if (order.stages.size() != stages) {
    return differs(absl::StrCat(order.stages.size(), " stages, expected ", stages));
  }
  for (size_t s = 0; s < stages; ++s) {
    const LayerRange& of_part = layers[topology.table[s].part];
    const RecordedOrder::Stage expected = {topology.table[s].worker, of_part.first, of_part.count};
    if (order.stages[s] == expected) continue;
    return differs(absl::StrCat("stage ", s, " is on worker ", order.stages[s].worker.value,
                                " with layers ", order.stages[s].first_layer, "+",
                                order.stages[s].layers, ", expected worker ", expected.worker.value,
                                " with layers ", expected.first_layer, "+", expected.layers));
  }
  int64_t from_step = 0;
  for (size_t i = 0; i < std::max(cuts.size(), order.ranges.size()); ++i) {
    const MicrobatchRange got =
        i < order.ranges.size() ? order.ranges[i].microbatches : MicrobatchRange();
    const MicrobatchRange expected =
        i < cuts.size() ? RangeOfSteps(job, from_step, cuts[i].step) : MicrobatchRange();
    if (!(got == expected)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "its range ", i, " is ", got.first, "+", got.count, ", but the job has ", expected.first,
          "+", expected.count,
          " there (0+0: none). Ranges end at cuts: a run that was drained needs "
          "--extra-cuts, one that went on from a checkpoint the orders of all runs before it"));
    }
    if (i < cuts.size()) from_step = cuts[i].step;
  }
  return absl::OkStatus();
}

class Reference {
 public:
  Reference(const ReferenceOptions& options, ResolvedJob job, Files& files, Backend& backend)
      : options_(options), job_(std::move(job)), files_(files), backend_(backend) {}

  absl::Status Prepare();
  absl::StatusOr<ReferenceResult> Train();

 private:
  absl::Status OpenData();
  absl::StatusOr<SerialModel> MakeModel(const std::vector<LayerRange>& ranges);
  absl::Status MakeCoders(SerialModel& model);
  // Returns the rule of the range that begins at microbatch `first`.
  VersionRule RuleFor(int64_t stages, int64_t interval, int64_t replicas = 1, int64_t first = 0,
                      std::optional<int64_t> stage = std::nullopt) const {
    return VersionRule({.weights = job_.weights_read().name,
                        .stages = stages,
                        .stage = stage,
                        .replicas = replicas,
                        .interval = interval,
                        .updates_each_microbatch = job_.method->updates_each_microbatch,
                        .first_replicas = job_.ReplicasOfStages(stages).front(),
                        .first_depth = in_flight_.front(),
                        .draws = BlockDraws(job_.seed, job_.delta.value_or(PipelineDelay(stages)),
                                            static_cast<int32_t>(stages)),
                        .replay = replay_.has_value() ? &*replay_ : nullptr,
                        .first = first});
  }
  absl::Status ReplayOrder();

  // Returns whether the stage recomputes, and that from other weights than its forward read. With the same
  // weights it comes to the same, so that here nothing is done twice.
  bool RecomputeMatters(int32_t place) const {
    const bool reads_others =
        !job_.method->synchronous && RuleFor(options_.stages.size(), 1).RereadsWeights();
    return reads_others && job_.recompute.Has(place);
  }

  absl::Status TrainSteps(int64_t first, int64_t end);
  absl::Status TrainReplicas(int64_t first, int64_t end);
  absl::Status TrainContinuously(int64_t first, int64_t end);

  absl::Status ForwardAndBackward(SerialModel& model, int64_t microbatch);
  // W, into the sum of the microbatch's replica.
  absl::Status BackwardWeight(SerialStage& serial, int64_t microbatch);
  // Puts the sums of all replicas together, before an update of `method` with the gradients of `microbatches`.
  absl::Status CombineReplicas(SerialStage& serial, const Method& method,
                               MicrobatchRange microbatches);
  // A tensor as it comes to the worker after, of stage `serial`, where that gets a message from `coder`.
  absl::StatusOr<Tensor> Pass(Tensor tensor, MessageCoder* coder, const SerialStage& serial,
                              int64_t microbatch);
  // F, with the statistics of the microbatch's replica.
  absl::StatusOr<Tensor> Forward(SerialStage& serial, int64_t microbatch, Tensor input);
  // Makes the statistics of all replicas their mean.
  void CombineStatistics(SerialStage& serial);
  void CopyStatistics(float* to, const float* from, const SerialStage& serial);
  // Adds up the gradients of parameters that stages share, from the last to the first.
  void CombineTies(SerialModel& model);
  absl::StatusOr<double> GlobalNorm(const SerialModel& model, int64_t step);
  // `read_version`: by the forward of the update's first microbatch.
  absl::Status Update(SerialModel& model, SerialStage& serial, MicrobatchRange microbatches,
                      int64_t read_version, int64_t oldest_live_version);
  // In its place: the next version is the same weights.
  absl::Status LeaveOutUpdate(SerialStage& serial, int64_t oldest_live_version);
  absl::StatusOr<std::vector<float>> ClipFactorsOf(const SerialModel& model, SerialStage& serial,
                                                   int64_t step);
  absl::StatusOr<Evaluation> Validate(int64_t step);
  absl::StatusOr<EvaluationSums> ValidateBatch(int64_t batch, int64_t step);
  absl::Status FinishStep(int64_t microbatches_end);
  absl::Status Finish();

  int64_t StepOf(int64_t microbatch) const { return microbatch / job_.microbatches + 1; }

  const ReferenceOptions& options_;
  const ResolvedJob job_;
  Files& files_;
  Backend& backend_;
  std::unique_ptr<DataSource> data_;
  std::optional<PortReader> ports_;
  std::optional<ValidTargets> valid_targets_;
  std::vector<int64_t> in_flight_;     // MicrobatchesInFlight of the stages
  std::optional<OrderReplay> replay_;  // of a job in recorded order
  std::vector<SerialModel> models_;    // the replicas; else one
  double loss_sum_ = 0.0;              // of the step in progress, weighted
  double gradient_norm_ = 0.0;
  std::vector<double> layer_norms_;  // squared, by layer, of the update in hand
  ReferenceResult result_;
};

absl::Status Reference::Prepare() {
  PENSTOCK_RETURN_IF_ERROR(OpenData());
  const bool replicated = !job_.stage_replicas.empty();
  // A method that drains has the whole model as one stage, but for replicas of its stages and compressed messages.
  const std::vector<LayerRange> whole = {{0, job_.model.size()}};
  const std::vector<LayerRange>& ranges =
      job_.method->synchronous && !replicated && !job_.compression.any() ? whole : options_.stages;
  if (ranges.empty()) return absl::InvalidArgumentError("there are no stages");
  in_flight_ = MicrobatchesInFlight(job_.ReplicasOfStages(static_cast<int64_t>(ranges.size())));
  PENSTOCK_RETURN_IF_ERROR(Annotate(ReplayOrder(), "recorded order"));
  if (replicated || job_.compression.any()) {
    PENSTOCK_RETURN_IF_ERROR(CheckStages(job_, static_cast<int64_t>(options_.stages.size())));
  }
  const int32_t replicas = job_.PipelinesOf(static_cast<int64_t>(options_.stages.size()));
  for (int32_t replica = 0; replica < replicas; ++replica) {
    PENSTOCK_ASSIGN_OR_RETURN(SerialModel model, MakeModel(ranges));
    PENSTOCK_RETURN_IF_ERROR(MakeCoders(model));
    models_.push_back(std::move(model));
  }
  return absl::OkStatus();
}

absl::Status Reference::OpenData() {
  PENSTOCK_ASSIGN_OR_RETURN(
      data_, penstock::OpenData(files_, options_.spec, job_, options_.data_root, options_.limits));
  ports_.emplace(job_.model, job_.microbatch_samples, data_.get());
  valid_targets_.emplace(job_, data_.get());
  return absl::OkStatus();
}

absl::Status Reference::ReplayOrder() {
  const bool expected = job_.order == Order::kRecorded;
  if (expected != options_.recorded.has_value()) {
    return absl::InvalidArgumentError(
        expected
            ? "is missing: pipeline.order is recorded, so what was read depends on the run; give "
              "what `penstock train --record` wrote"
            : "there is one, but pipeline.order is static");
  }
  if (!expected) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(CheckOrderFits(*options_.recorded, job_, options_.stages,
                                          CutsOf(options_.spec, 0, options_.extra_cuts)));
  const int64_t interval = job_.microbatches_of_update(job_.steps);
  const auto stages = static_cast<int64_t>(options_.stages.size());
  const int64_t first = job_.ReplicasOfStages(stages).front();
  const VersionRule of_first = RuleFor(stages, std::max(interval, first), first);
  PENSTOCK_ASSIGN_OR_RETURN(
      replay_, OrderReplay::Make(*options_.recorded, {.microbatches_per_update = interval,
                                                      .drains = job_.method->synchronous,
                                                      .lag = of_first.FixedAge()}));
  return absl::OkStatus();
}

absl::StatusOr<SerialModel> Reference::MakeModel(const std::vector<LayerRange>& ranges) {
  SerialModel model;
  int next_layer = 0;
  for (size_t s = 0; s < ranges.size(); ++s) {
    if (ranges[s].first != next_layer || ranges[s].count < 1) {
      return absl::InvalidArgumentError(absl::StrCat("stage ", s, " starts at layer ",
                                                     ranges[s].first, " with ", ranges[s].count,
                                                     " layers; the next layer is ", next_layer));
    }
    next_layer = ranges[s].end();
    const auto stages = static_cast<int64_t>(ranges.size());
    const int32_t replicas = job_.ReplicasOfStages(stages)[s];
    SerialStage serial = {.layers = ranges[s],
                          .number = static_cast<int64_t>(s),
                          .depth = in_flight_[s],
                          .interval = job_.microbatches_of_update(job_.steps),
                          .recomputes = RecomputeMatters(static_cast<int32_t>(s))};
    if (job_.method->updates_each_microbatch) serial.interval = replicas;
    const VersionRule rule = RuleFor(stages, serial.interval, replicas, 0, serial.number);
    if (!job_.method->synchronous) serial.lateness = rule.Lateness(serial.depth);
    HistoryOptions history = HistoryOfStage(job_, serial.lateness);
    history.averages_max = rule.VersionsMax(serial.depth);
    PENSTOCK_ASSIGN_OR_RETURN(
        serial.stage, Stage::Create(backend_, job_.model,
                                    {.layers = ranges[s],
                                     .samples = job_.microbatch_samples,
                                     .step_samples = job_.batch,
                                     .precision = job_.precision,
                                     .rounding = job_.rounding,
                                     .recomputes = serial.recomputes,
                                     .optimizer = OptimizerOfStage(job_, serial.lateness, stages),
                                     .history = history,
                                     .keeps_average = job_.average_decay.has_value(),
                                     .evaluates_average = job_.validates_average,
                                     .seed = job_.seed,
                                     .versions_max = rule.VersionsMax(serial.depth),
                                     .microbatches_in_flight_max = 1}));
    PENSTOCK_RETURN_IF_ERROR(LoadFirstWeights(
        {.files = files_, .root = options_.data_root, .model = options_.spec.model(), .job = job_},
        serial.layers, [] { return absl::OkStatus(); }, *serial.stage));
    for (int32_t replica = 0; replicas > 1 && replica < replicas; ++replica) {
      const int64_t count = serial.stage->gradient_count();
      PENSTOCK_ASSIGN_OR_RETURN(serial.sums.emplace_back(),
                                AcquireTensor(backend_.pool(), DType::kF32, {count}));
      backend_.Fill(serial.sums.back().data<float>(), 0.0f, count);
      const int64_t statistics = serial.stage->statistics_count();
      if (statistics == 0) continue;
      PENSTOCK_ASSIGN_OR_RETURN(serial.statistics.emplace_back(),
                                AcquireTensor(backend_.pool(), DType::kF32, {statistics}));
      CopyStatistics(serial.statistics.back().data<float>(), serial.stage->Buffers().data<float>(),
                     serial);
    }
    model.push_back(std::move(serial));
  }
  if (next_layer == job_.model.size()) return model;
  return absl::InvalidArgumentError(
      absl::StrCat("the stages have ", next_layer, " layers, the model ", job_.model.size()));
}

absl::Status Reference::MakeCoders(SerialModel& model) {
  if (!job_.compression.any()) return absl::OkStatus();
  // Stages of one worker send each other nothing.
  const Topology topology = TopologyOf(job_, static_cast<int64_t>(model.size()));
  for (SerialStage& serial : model) {
    const StageId id(static_cast<int32_t>(serial.number));
    PENSTOCK_ASSIGN_OR_RETURN(
        serial.coders, StageCoders::Make(backend_.pool(), job_, topology, id, serial.layers));
  }
  return absl::OkStatus();
}

absl::StatusOr<ReferenceResult> Reference::Train() {
  int64_t step = 0;
  EarlyStop early_stop(job_.stop_after);
  for (const Cut& cut : CutsOf(options_.spec, 0, options_.extra_cuts)) {
    const int64_t first = step * job_.microbatches;
    const int64_t end = cut.step * job_.microbatches;
    PENSTOCK_RETURN_IF_ERROR(!job_.DrainsAfter(step) ? TrainContinuously(first, end)
                             : job_.MethodAfter(step).updates_each_microbatch
                                 ? TrainReplicas(first, end)
                                 : TrainSteps(first, end));
    if (cut.step > step) {
      for (SerialStage& serial : models_.front()) CombineStatistics(serial);
    }
    step = cut.step;
    if (!cut.validate) continue;
    PENSTOCK_ASSIGN_OR_RETURN(Evaluation evaluation, Validate(step));
    const bool ends = early_stop.Ends(evaluation.loss);
    result_.validations.push_back({step, std::move(evaluation)});
    if (ends) break;
  }
  PENSTOCK_RETURN_IF_ERROR(Finish());
  return std::move(result_);
}

absl::Status Reference::TrainSteps(int64_t first, int64_t end) {
  SerialModel& model = models_.front();
  for (int64_t microbatch = first; microbatch < end; ++microbatch) {
    for (SerialStage& serial : model) serial.forward = serial.backward = serial.stage->version();
    PENSTOCK_RETURN_IF_ERROR(ForwardAndBackward(model, microbatch));
    const int64_t done = microbatch + 1;
    if (done % job_.microbatches != 0) continue;
    for (SerialStage& serial : model) {
      PENSTOCK_RETURN_IF_ERROR(CombineReplicas(serial, job_.MethodAfter(StepOf(microbatch) - 1),
                                               {done - job_.microbatches, job_.microbatches}));
    }
    CombineTies(model);
    for (SerialStage& serial : model) {
      const int64_t version = serial.stage->version();
      PENSTOCK_RETURN_IF_ERROR(Update(model, serial, {done - job_.microbatches, job_.microbatches},
                                      version, version + 1));
    }
    PENSTOCK_RETURN_IF_ERROR(FinishStep(done));
  }
  return absl::OkStatus();
}

absl::Status Reference::TrainReplicas(int64_t first, int64_t end) {
  const auto replicas = static_cast<int64_t>(models_.size());
  std::vector<Stage*> wholes;
  for (const SerialModel& model : models_) wholes.push_back(model.front().stage.get());
  for (int64_t microbatch = first; microbatch < end; ++microbatch) {
    SerialModel& model = models_[microbatch % replicas];
    SerialStage& whole = model.front();
    const int64_t version = whole.stage->version();
    whole.forward = whole.backward = version;
    PENSTOCK_RETURN_IF_ERROR(ForwardAndBackward(model, microbatch));
    const int64_t done = microbatch + 1;
    PENSTOCK_RETURN_IF_ERROR(Update(model, whole, {microbatch, 1}, version, version + 1));
    if (done % job_.microbatches != 0) continue;
    if (replicas > 1) Stage::Average(wholes);
    PENSTOCK_RETURN_IF_ERROR(FinishStep(done));
  }
  return absl::OkStatus();
}

absl::Status Reference::TrainContinuously(int64_t first, int64_t end) {
  SerialModel& model = models_.front();
  std::vector<VersionRule> rules;
  for (SerialStage& serial : model) {
    const auto replicas = std::max<int64_t>(1, static_cast<int64_t>(serial.sums.size()));
    rules.push_back(RuleFor(static_cast<int64_t>(model.size()), serial.interval, replicas, first,
                            serial.number));
    serial.base = serial.stage->version();
  }
  for (int64_t k = 0; k < end - first; ++k) {
    for (SerialStage& serial : model) {
      const VersionRule& rule = rules[serial.number];
      serial.forward = {serial.base + rule.Forward(k, serial.depth),
                        rule.ForwardAhead(k, serial.depth)};
      serial.backward = {serial.base + rule.Backward(k, serial.depth),
                         rule.BackwardAhead(k, serial.depth)};
    }
    PENSTOCK_RETURN_IF_ERROR(ForwardAndBackward(model, first + k));
    const int64_t done = first + k + 1;
    for (SerialStage& serial : model) {
      if (done % serial.interval != 0) continue;
      const VersionRule& rule = rules[serial.number];
      const int64_t read = serial.base + rule.Forward(k + 1 - serial.interval, serial.depth);
      const int64_t oldest_live = done == end ? serial.stage->version() + 1
                                              : serial.base + rule.OldestFrom(k + 1, serial.depth);
      PENSTOCK_RETURN_IF_ERROR(
          CombineReplicas(serial, *job_.method, {done - serial.interval, serial.interval}));
      PENSTOCK_RETURN_IF_ERROR(
          rule.Moves(k, serial.depth)
              ? Update(model, serial, {done - serial.interval, serial.interval}, read, oldest_live)
              : LeaveOutUpdate(serial, oldest_live));
    }
    if (done % job_.microbatches == 0) PENSTOCK_RETURN_IF_ERROR(FinishStep(done));
  }
  return absl::OkStatus();
}

absl::Status Reference::ForwardAndBackward(SerialModel& model, int64_t microbatch) {
  const int64_t first_sample = FirstSample(job_, microbatch);
  const MicrobatchId id(microbatch);
  Tensor activation;
  for (SerialStage& serial : model) {
    PENSTOCK_ASSIGN_OR_RETURN(activation, Forward(serial, microbatch, std::move(activation)));
    PENSTOCK_ASSIGN_OR_RETURN(
        activation,
        Pass(std::move(activation), serial.coders.activations.get(), serial, microbatch));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const double loss, model.back().stage->ReadLoss(activation));
  PENSTOCK_RETURN_IF_ERROR(
      CheckLoss(loss, StepOf(microbatch), static_cast<int32_t>(model.size() - 1)));
  PENSTOCK_ASSIGN_OR_RETURN(const double weight,
                            valid_targets_->Weight(Split::kTraining, microbatch));
  loss_sum_ += loss * weight;
  if (options_.on_microbatch) {
    PENSTOCK_RETURN_IF_ERROR(options_.on_microbatch(microbatch, loss));
  }

  PENSTOCK_ASSIGN_OR_RETURN(const float loss_scale, valid_targets_->LossScale(microbatch));
  Tensor gradient;
  for (auto serial = model.rbegin(); serial != model.rend(); ++serial) {
    Stage& stage = *serial->stage;
    if (serial->recomputes) {
      PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports,
                                ports_->Read(stage, Split::kTraining, first_sample));
      PENSTOCK_RETURN_IF_ERROR(stage.Recompute(id, serial->backward, ports));
    }
    PENSTOCK_ASSIGN_OR_RETURN(
        gradient, stage.BackwardInput(id, serial->backward, std::move(gradient), loss_scale));
    PENSTOCK_ASSIGN_OR_RETURN(
        gradient, Pass(std::move(gradient), serial->coders.gradients.get(), *serial, microbatch));
    PENSTOCK_RETURN_IF_ERROR(BackwardWeight(*serial, microbatch));
    serial->pending.push_back({serial->forward.version, serial->backward.version});
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Reference::Pass(Tensor tensor, MessageCoder* coder,
                                       const SerialStage& serial, int64_t microbatch) {
  if (coder == nullptr) return tensor;
  absl::StatusOr<Tensor> message = coder->Encode(tensor);
  if (absl::IsFailedPrecondition(message.status())) {
    return MessageNotFinite(StepOf(microbatch), static_cast<int32_t>(serial.number));
  }
  PENSTOCK_RETURN_IF_ERROR(message.status());
  return Decode(backend_.pool(), job_.compression, *std::move(message), tensor.dtype, tensor.shape);
}

absl::StatusOr<Tensor> Reference::Forward(SerialStage& serial, int64_t microbatch, Tensor input) {
  Stage& stage = *serial.stage;
  const int64_t first_sample = FirstSample(job_, microbatch);
  PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports,
                            ports_->Read(stage, Split::kTraining, first_sample));
  float* const shared = stage.Buffers().data<float>();
  float* const own = serial.statistics.empty()
                         ? nullptr
                         : serial.statistics[microbatch % serial.statistics.size()].data<float>();
  if (own != nullptr) CopyStatistics(shared, own, serial);
  PENSTOCK_ASSIGN_OR_RETURN(Tensor output,
                            stage.Forward(MicrobatchId(microbatch),
                                          ports_->StartOf(stage, Split::kTraining, first_sample),
                                          serial.forward, std::move(input), ports));
  if (own != nullptr) CopyStatistics(own, shared, serial);
  return output;
}

void Reference::CopyStatistics(float* to, const float* from, const SerialStage& serial) {
  backend_.CopyOnDevice(to, from, serial.stage->statistics_count() * SizeOf(DType::kF32));
}

void Reference::CombineStatistics(SerialStage& serial) {
  if (serial.statistics.empty()) return;
  const int64_t count = serial.stage->statistics_count();
  float* const mean = serial.stage->Buffers().data<float>();
  CopyStatistics(mean, serial.statistics.front().data<float>(), serial);
  for (size_t replica = 1; replica < serial.statistics.size(); ++replica) {
    backend_.AddInto(mean, serial.statistics[replica].data<float>(), count);
  }
  backend_.Scale(mean, MeanFactor(static_cast<int64_t>(serial.statistics.size())), count);
  for (const Tensor& own : serial.statistics) CopyStatistics(own.data<float>(), mean, serial);
}

absl::Status Reference::BackwardWeight(SerialStage& serial, int64_t microbatch) {
  const MicrobatchId id(microbatch);
  if (serial.sums.empty()) return serial.stage->BackwardWeight(id);
  float* const sum = serial.sums[microbatch % serial.sums.size()].data<float>();
  PENSTOCK_RETURN_IF_ERROR(serial.stage->PutGradients(sum));
  PENSTOCK_RETURN_IF_ERROR(serial.stage->BackwardWeight(id));
  serial.stage->TakeGradients(sum);
  return absl::OkStatus();
}

absl::Status Reference::CombineReplicas(SerialStage& serial, const Method& method,
                                        MicrobatchRange microbatches) {
  if (serial.sums.empty()) return absl::OkStatus();
  const int64_t count = serial.stage->gradient_count();
  // Microbatches of a step have each their share of its loss already.
  const bool is_mean = method.updates_each_microbatch;
  const bool weighted = is_mean && !valid_targets_->all_count();
  for (int64_t m = microbatches.first; weighted && m < microbatches.end(); ++m) {
    PENSTOCK_ASSIGN_OR_RETURN(const float weight, valid_targets_->Part(m, microbatches));
    backend_.Scale(serial.sums[m % serial.sums.size()].data<float>(), weight, count);
  }
  float* const sum = serial.sums.front().data<float>();
  for (size_t replica = 1; replica < serial.sums.size(); ++replica) {
    backend_.AddInto(sum, serial.sums[replica].data<float>(), count);
  }
  if (is_mean && !weighted) {
    backend_.Scale(sum, MeanFactor(static_cast<int64_t>(serial.sums.size())), count);
  }
  PENSTOCK_RETURN_IF_ERROR(serial.stage->PutGradients(sum));
  for (const Tensor& used : serial.sums) backend_.Fill(used.data<float>(), 0.0f, count);
  return absl::OkStatus();
}

void Reference::CombineTies(SerialModel& model) {
  std::vector<LayerRange> parts;
  for (const SerialStage& serial : model) parts.push_back(serial.layers);
  for (const TieGroup& group : TieGroupsOf(job_.model, parts)) {
    for (const auto& [tie, sum] : group.sums) {
      Tensor later;
      for (auto part = sum.parts.rbegin(); part != sum.parts.rend(); ++part) {
        model[*part].stage->CombineTied(tie, later);
        later = model[*part].stage->TiedGradient(tie);
      }
      const Tensor whole = later;
      for (auto part = sum.parts.begin() + 1; part != sum.parts.end(); ++part) {
        backend_.CopyOnDevice(model[*part].stage->TiedGradient(tie).data<void>(),
                              whole.data<void>(), whole.size_bytes());
      }
    }
  }
}

absl::Status Reference::Update(SerialModel& model, SerialStage& serial,
                               MicrobatchRange microbatches, int64_t read_version,
                               int64_t oldest_live_version) {
  Stage& stage = *serial.stage;
  serial.CountUpdate(stage.version());
  const int64_t version = stage.version() + 1;
  stage.CombineUses();
  if (CompensatesDelay(job_, version, read_version)) {
    PENSTOCK_RETURN_IF_ERROR(
        stage.CompensateDelay(read_version, job_.staleness.delay_compensation));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<float> scales,
                            ClipFactorsOf(model, serial, StepOf(microbatches.end() - 1)));
  return stage.Step(version, {.learning_rate = RateOfUpdate(job_, serial.lateness, microbatches),
                              .gradient_scales = scales,
                              .keep_replaced = oldest_live_version < version,
                              .oldest_live_version = oldest_live_version,
                              .average_keep = AverageKept(job_, microbatches.count,
                                                          static_cast<int64_t>(models_.size())),
                              .feed_back = FeedsBack(job_, version, read_version)});
}

absl::Status Reference::LeaveOutUpdate(SerialStage& serial, int64_t oldest_live_version) {
  serial.CountUpdate(serial.stage->version());
  return serial.stage->KeepWeights(serial.stage->version() + 1, oldest_live_version);
}

absl::StatusOr<std::vector<float>> Reference::ClipFactorsOf(const SerialModel& model,
                                                            SerialStage& serial, int64_t step) {
  std::vector<float> factors(job_.model.size(), 1.0f);
  if (job_.clip.kind == Clip::Kind::kNone) return factors;
  // A layer's norm is measured before those of stages behind it, which may share its parameters.
  layer_norms_.resize(job_.model.size());
  const auto norms = absl::MakeSpan(layer_norms_).subspan(serial.layers.first, serial.layers.count);
  PENSTOCK_RETURN_IF_ERROR(serial.stage->LayerSquaredNorms(norms));
  PENSTOCK_RETURN_IF_ERROR(CheckNorms(job_.model, serial.layers, norms, step,
                                      static_cast<int32_t>(&serial - model.data())));
  if (job_.clip.kind == Clip::Kind::kGlobalNorm && serial.stage->is_first()) {
    // Now, before a stage has made its step.
    PENSTOCK_ASSIGN_OR_RETURN(gradient_norm_, GlobalNorm(model, step));
  }
  ClipFactors(job_.clip, layer_norms_, gradient_norm_, absl::MakeSpan(factors));
  return factors;
}

absl::StatusOr<double> Reference::GlobalNorm(const SerialModel& model, int64_t step) {
  std::vector<double> norms(job_.model.size());
  for (const SerialStage& serial : model) {
    const auto own = absl::MakeSpan(norms).subspan(serial.layers.first, serial.layers.count);
    serial.stage->CombineUses();
    PENSTOCK_RETURN_IF_ERROR(serial.stage->LayerSquaredNorms(own));
    PENSTOCK_RETURN_IF_ERROR(CheckNorms(job_.model, serial.layers, own, step,
                                        static_cast<int32_t>(&serial - model.data())));
  }
  return CombinedNorm(norms);
}

absl::Status Reference::FinishStep(int64_t microbatches_end) {
  const int64_t number = StepOf(microbatches_end - 1);
  PENSTOCK_ASSIGN_OR_RETURN(const double weight,
                            valid_targets_->Weight(Split::kTraining, RangeOfStep(job_, number)));
  const StepResult step = {
      .step = number,
      .loss = loss_sum_ / std::max(weight, 1.0),
      .learning_rate = RateOfUpdate(job_, models_.front().back().lateness, {0, microbatches_end}),
      .gradient_norm = gradient_norm_};
  loss_sum_ = 0.0;
  result_.steps.push_back(step);
  if (options_.on_step) options_.on_step(step);
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> Reference::Validate(int64_t step) {
  EvaluationSums sums;
  for (int64_t batch = 0; batch < job_.validation_batches; ++batch) {
    PENSTOCK_ASSIGN_OR_RETURN(const EvaluationSums of_batch, ValidateBatch(batch, step));
    sums += of_batch;
  }
  return sums.Result(job_.model);
}

absl::StatusOr<EvaluationSums> Reference::ValidateBatch(int64_t batch, int64_t step) {
  SerialModel& model = models_.front();
  Stage::Evaluated evaluated;
  for (SerialStage& serial : model) {
    Stage& stage = *serial.stage;
    const int64_t first = FirstSample(job_, batch);
    PENSTOCK_ASSIGN_OR_RETURN(const absl::Span<const Tensor> ports,
                              ports_->Read(stage, Split::kValidation, first));
    const MicrobatchStart start = ports_->StartOf(stage, Split::kValidation, first);
    PENSTOCK_ASSIGN_OR_RETURN(
        evaluated, stage.Evaluate(stage.version(), std::move(evaluated.output), ports, start));
  }
  Stage& last = *model.back().stage;
  PENSTOCK_ASSIGN_OR_RETURN(const double loss, last.ReadLoss(evaluated.output));
  PENSTOCK_RETURN_IF_ERROR(CheckLoss(loss, step, static_cast<int32_t>(model.size() - 1)));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> ranks, last.ReadRanks(evaluated.ranks));
  PENSTOCK_ASSIGN_OR_RETURN(const double weight, valid_targets_->Weight(Split::kValidation, batch));
  return EvaluationSums::Of(loss, weight, ranks);
}

absl::Status Reference::Finish() {
  for (const SerialModel& model : models_) {
    for (const SerialStage& serial : model) result_.reads.push_back(serial.reads);
  }
  result_.layer_sha256.resize(job_.model.size());
  for (SerialStage& serial : models_.front()) {
    int layer = serial.layers.first;
    for (std::string& sha256 : serial.stage->LayerDigests()) {
      result_.layer_sha256[job_.model.layers[layer++].number] = std::move(sha256);
    }
  }
  result_.weights_sha256 = CombineLayerDigests(result_.layer_sha256);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReferenceResult> TrainReference(const ReferenceOptions& options, Files& files,
                                               Backend& backend) {
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedJob job, ResolveJob(options.spec));
  Reference reference(options, std::move(job), files, backend);
  PENSTOCK_RETURN_IF_ERROR(reference.Prepare());
  return reference.Train();
}

}  // namespace penstock
