#include "worker/reference.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "checkpoint/weights_digest.h"
#include "compute/clip.h"
#include "compute/stage.h"
#include "job/resolve.h"
#include "worker/data_source.h"
#include "worker/text_options.h"

namespace penstock {
namespace {

// A stage, how many stages come before and after it, and what the microbatch in hand reads.
struct SerialStage {
  std::unique_ptr<Stage> stage;
  LayerRange layers;
  int64_t number = 0;
  int64_t depth = 0;
  bool recomputes = false;
  StageLateness lateness;
  WeightRead forward = 0;
  WeightRead backward = 0;
};

// The stages of one copy of the model.
using SerialModel = std::vector<SerialStage>;

// Which versions microbatch k of a range reads, both counted from the cut: the closed forms of the
// continuous methods. A stage updates after every `interval` microbatches.
class VersionRule {
 public:
  VersionRule(Weights weights, int64_t stages, int64_t interval)
      : weights_(weights), stages_(stages), interval_(interval) {}

  int64_t Forward(int64_t k, int64_t depth) const {
    switch (weights_) {
      case Weights::kSingle:
      case Weights::kStash:
      case Weights::kPredicted:
      case Weights::kSpecTrain:
      case Weights::kCorrected:
        return std::max<int64_t>(0, k - depth) / interval_;
      case Weights::kDoubleBuffer:
        return std::max<int64_t>(0, k / interval_ - 1);
      case Weights::kVerticalSync:
        return std::max<int64_t>(0, k - (stages_ - 1));
    }
    PENSTOCK_CHECK(false);
  }
  int64_t Backward(int64_t k, int64_t depth) const {
    return ReadsCurrent() ? k / interval_ : Forward(k, depth);
  }
  // By how many updates the weights of stage `number` are moved from these versions.
  int64_t ForwardAhead(int64_t k, int64_t number, int64_t depth) const {
    return Predicts() ? Aim(k, number) - Forward(k, depth) : 0;
  }
  int64_t BackwardAhead(int64_t k, int64_t number, int64_t depth) const {
    if (weights_ == Weights::kCorrected) return Forward(k, depth) - Backward(k, depth);
    return Predicts() ? Aim(k, number) - Backward(k, depth) : 0;
  }
  // The most updates between a gradient's forward and the update it goes into, and between its forward and its
  // backward where both read the current weights.
  StageLateness Lateness(int64_t depth) const {
    const int64_t in_flight = (depth + interval_ - 1) / interval_;
    switch (weights_) {
      case Weights::kDoubleBuffer:
        return {.staleness = 1};
      case Weights::kVerticalSync:
        return {.staleness = stages_ - 1};
      case Weights::kStash:
        return {.staleness = in_flight};
      default:
        return {.staleness = in_flight, .drift = in_flight};
    }
  }
  // Whether forward and backward each read the weights as they are then, moved or not.
  bool ReadsCurrent() const {
    return weights_ == Weights::kSingle || weights_ == Weights::kCorrected || Predicts();
  }
  // From the oldest still to be read to the newest.
  int64_t VersionsMax(int64_t depth) const {
    switch (weights_) {
      case Weights::kSingle:
      case Weights::kStash:
      case Weights::kPredicted:
      case Weights::kSpecTrain:
      case Weights::kCorrected:
        return (depth + interval_ - 1) / interval_ + 1;
      case Weights::kDoubleBuffer:
        return 2;
      case Weights::kVerticalSync:
        return stages_;
    }
    PENSTOCK_CHECK(false);
  }

 private:
  bool Predicts() const {
    return weights_ == Weights::kPredicted || weights_ == Weights::kSpecTrain;
  }
  // The version that a prediction is for: the one that the microbatch's own update replaces, or the current
  // one when the first stage makes its update.
  int64_t Aim(int64_t k, int64_t number) const {
    return (weights_ == Weights::kSpecTrain ? k + number / 2 : k) / interval_;
  }

  const Weights weights_;
  const int64_t stages_;
  const int64_t interval_;
};

class Reference {
 public:
  Reference(const ReferenceOptions& options, ResolvedJob job, Files& files, Backend& backend)
      : options_(options), job_(std::move(job)), files_(files), backend_(backend) {}

  absl::Status Prepare();
  absl::StatusOr<ReferenceResult> Train();

 private:
  absl::Status OpenData();
  absl::StatusOr<SerialModel> MakeModel(const std::vector<LayerRange>& ranges);
  VersionRule RuleFor(size_t stages) const {
    return {job_.weights_read(), static_cast<int64_t>(stages),
            job_.microbatches_of_update(job_.steps)};
  }

  // Whether the stage recomputes, and that from other weights than its forward read. With the same weights it
  // comes to the same, so that here nothing is done twice.
  bool RecomputeMatters(int32_t place) const {
    const bool reads_others =
        !job_.method->synchronous && RuleFor(options_.stages.size()).ReadsCurrent();
    return reads_others && job_.recompute.Has(place);
  }

  // The steps up to the cut, from microbatch `first` on.
  absl::Status TrainSteps(int64_t first, int64_t end);
  absl::Status TrainReplicas(int64_t first, int64_t end);
  absl::Status TrainContinuously(int64_t first, int64_t end);

  absl::Status ForwardAndBackward(SerialModel& model, int64_t microbatch);
  // `read_version`: by the forward of the update's first microbatch.
  absl::Status Update(SerialModel& model, SerialStage& serial, int64_t microbatches_end,
                      int64_t read_version, int64_t oldest_live_version);
  absl::StatusOr<std::vector<float>> ClipFactorsOf(const SerialModel& model, SerialStage& serial,
                                                   int64_t step);
  absl::StatusOr<double> Validate(int64_t step);
  void FinishStep(int64_t microbatches_end);
  absl::Status Finish();

  int64_t StepOf(int64_t microbatch) const { return microbatch / job_.microbatches + 1; }

  const ReferenceOptions& options_;
  const ResolvedJob job_;
  Files& files_;
  Backend& backend_;
  std::unique_ptr<DataSource> data_;
  std::vector<SerialModel> models_;  // the replicas; else one
  double loss_sum_ = 0.0;            // of the step in progress
  double gradient_norm_ = 0.0;
  ReferenceResult result_;
};

absl::Status Reference::Prepare() {
  PENSTOCK_RETURN_IF_ERROR(OpenData());
  const std::vector<LayerRange> whole = {{0, job_.chain.size()}};
  const int32_t replicas = job_.PipelinesOf(static_cast<int64_t>(options_.stages.size()));
  for (int32_t replica = 0; replica < replicas; ++replica) {
    PENSTOCK_ASSIGN_OR_RETURN(SerialModel model,
                              MakeModel(job_.method->synchronous ? whole : options_.stages));
    models_.push_back(std::move(model));
  }
  return absl::OkStatus();
}

absl::Status Reference::OpenData() {
  const std::string path = JoinPath(options_.data_root, options_.spec.data().text().path());
  PENSTOCK_ASSIGN_OR_RETURN(
      data_, DataSource::OpenText(
                 files_, TextOptionsOf(options_.spec, job_, path, options_.limits.data_bytes_max)));
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
    SerialStage serial = {.layers = ranges[s],
                          .number = static_cast<int64_t>(s),
                          .depth = stages - 1 - static_cast<int64_t>(s),
                          .recomputes = RecomputeMatters(static_cast<int32_t>(s))};
    if (!job_.method->synchronous) serial.lateness = RuleFor(stages).Lateness(serial.depth);
    HistoryOptions history = HistoryOfStage(job_, serial.lateness);
    history.motions_max = RuleFor(stages).VersionsMax(serial.depth);
    PENSTOCK_ASSIGN_OR_RETURN(
        serial.stage, Stage::Create(backend_, job_.chain,
                                    {.layers = ranges[s],
                                     .batch = job_.microbatch,
                                     .precision = job_.precision,
                                     .rounding = job_.rounding,
                                     .recomputes = serial.recomputes,
                                     .optimizer = OptimizerOfStage(job_, serial.lateness, stages),
                                     .history = history,
                                     .seed = job_.seed,
                                     .versions_max = RuleFor(stages).VersionsMax(serial.depth),
                                     .microbatches_in_flight_max = 1}));
    serial.stage->InitializeWeights();
    model.push_back(std::move(serial));
  }
  if (next_layer == job_.chain.size()) return model;
  return absl::InvalidArgumentError(
      absl::StrCat("the stages have ", next_layer, " layers, the model ", job_.chain.size()));
}

absl::StatusOr<ReferenceResult> Reference::Train() {
  int64_t step = 0;
  for (const Cut& cut : CutsOf(options_.spec, 0, options_.extra_cuts)) {
    const int64_t first = step * job_.microbatches;
    const int64_t end = cut.step * job_.microbatches;
    PENSTOCK_RETURN_IF_ERROR(!job_.DrainsAfter(step) ? TrainContinuously(first, end)
                             : job_.MethodAfter(step).updates_each_microbatch
                                 ? TrainReplicas(first, end)
                                 : TrainSteps(first, end));
    step = cut.step;
    if (!cut.validate) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const double loss, Validate(step));
    result_.validations.push_back({step, loss});
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
      const int64_t version = serial.stage->version();
      PENSTOCK_RETURN_IF_ERROR(Update(model, serial, done, version, version + 1));
    }
    FinishStep(done);
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
    PENSTOCK_RETURN_IF_ERROR(Update(model, whole, done, version, version + 1));
    if (done % job_.microbatches != 0) continue;
    if (replicas > 1) Stage::Average(wholes);
    FinishStep(done);
  }
  return absl::OkStatus();
}

absl::Status Reference::TrainContinuously(int64_t first, int64_t end) {
  SerialModel& model = models_.front();
  const VersionRule rule = RuleFor(model.size());
  const int64_t base = model.front().stage->version();
  for (int64_t k = 0; k < end - first; ++k) {
    for (SerialStage& serial : model) {
      serial.forward = {base + rule.Forward(k, serial.depth),
                        rule.ForwardAhead(k, serial.number, serial.depth)};
      serial.backward = {base + rule.Backward(k, serial.depth),
                         rule.BackwardAhead(k, serial.number, serial.depth)};
    }
    PENSTOCK_RETURN_IF_ERROR(ForwardAndBackward(model, first + k));
    const int64_t done = first + k + 1;
    const int64_t interval = job_.microbatches_of_update(job_.steps);
    if (done % interval == 0) {
      const int64_t first_of_update = k + 1 - interval;
      for (SerialStage& serial : model) {
        const int64_t read = base + rule.Forward(first_of_update, serial.depth);
        const int64_t oldest_live =
            done == end ? serial.stage->version() + 1 : base + rule.Forward(k + 1, serial.depth);
        PENSTOCK_RETURN_IF_ERROR(Update(model, serial, done, read, oldest_live));
      }
    }
    if (done % job_.microbatches == 0) FinishStep(done);
  }
  return absl::OkStatus();
}

absl::Status Reference::ForwardAndBackward(SerialModel& model, int64_t microbatch) {
  std::vector<int32_t> tokens(job_.microbatch.batch * job_.microbatch.time);
  const int64_t first_sample = FirstSample(job_, microbatch);
  data_->ReadTraining(first_sample, TokenRole::kInput, absl::MakeSpan(tokens));
  PENSTOCK_ASSIGN_OR_RETURN(Tensor activation,
                            model.front().stage->TokensToDevice("token", tokens));
  data_->ReadTraining(first_sample, TokenRole::kTarget, absl::MakeSpan(tokens));
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor targets,
                            model.back().stage->TokensToDevice("target", tokens));

  const MicrobatchId id(microbatch);
  for (const SerialStage& serial : model) {
    Stage& stage = *serial.stage;
    PENSTOCK_ASSIGN_OR_RETURN(activation,
                              stage.Forward(id, first_sample, serial.forward, activation,
                                            stage.has_head() ? targets : Tensor()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const double loss, model.back().stage->ReadLoss(activation));
  PENSTOCK_RETURN_IF_ERROR(
      CheckLoss(loss, StepOf(microbatch), static_cast<int32_t>(model.size() - 1)));
  loss_sum_ += loss;

  Tensor gradient;
  for (auto serial = model.rbegin(); serial != model.rend(); ++serial) {
    Stage& stage = *serial->stage;
    if (serial->recomputes) {
      PENSTOCK_RETURN_IF_ERROR(
          stage.Recompute(id, serial->backward, stage.has_head() ? targets : Tensor()));
    }
    PENSTOCK_ASSIGN_OR_RETURN(
        gradient, stage.BackwardInput(id, serial->backward, gradient, LossScale(job_, microbatch)));
    PENSTOCK_RETURN_IF_ERROR(stage.BackwardWeight(id, serial->backward.version));
  }
  return absl::OkStatus();
}

absl::Status Reference::Update(SerialModel& model, SerialStage& serial, int64_t microbatches_end,
                               int64_t read_version, int64_t oldest_live_version) {
  Stage& stage = *serial.stage;
  const int64_t version = stage.version() + 1;
  stage.CombineLocalTiedGradients();
  if (CompensatesDelay(job_, version, read_version)) {
    PENSTOCK_RETURN_IF_ERROR(
        stage.CompensateDelay(read_version, job_.staleness.delay_compensation));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<float> scales,
                            ClipFactorsOf(model, serial, StepOf(microbatches_end - 1)));
  return stage.Step(version,
                    {.learning_rate = RateOfUpdate(job_, serial.lateness, {0, microbatches_end}),
                     .gradient_scales = scales,
                     .keep_replaced = oldest_live_version < version,
                     .oldest_live_version = oldest_live_version,
                     .feed_back = FeedsBack(job_, version, read_version)});
}

absl::StatusOr<std::vector<float>> Reference::ClipFactorsOf(const SerialModel& model,
                                                            SerialStage& serial, int64_t step) {
  std::vector<float> factors(serial.layers.count, 1.0f);
  if (job_.clip.kind == Clip::Kind::kNone) return factors;
  std::vector<double> norms(serial.layers.count);
  PENSTOCK_RETURN_IF_ERROR(serial.stage->LayerSquaredNorms(absl::MakeSpan(norms)));
  PENSTOCK_RETURN_IF_ERROR(CheckNorms(job_.chain, serial.layers, norms, step,
                                      static_cast<int32_t>(&serial - model.data())));
  if (job_.clip.kind == Clip::Kind::kGlobalNorm) gradient_norm_ = CombinedNorm(norms);
  if (job_.clip.kind == Clip::Kind::kLayerNorm && serial.stage->has_embedding()) {
    ShareTiedNorm(job_.chain, serial.layers, norms.front(), absl::MakeSpan(norms));
  }
  ClipFactors(job_.clip, norms, gradient_norm_, absl::MakeSpan(factors));
  return factors;
}

void Reference::FinishStep(int64_t microbatches_end) {
  const StepResult step = {
      .step = StepOf(microbatches_end - 1),
      .loss = loss_sum_ / static_cast<double>(job_.microbatches),
      .learning_rate = RateOfUpdate(job_, models_.front().back().lateness, {0, microbatches_end}),
      .gradient_norm = gradient_norm_};
  loss_sum_ = 0.0;
  result_.steps.push_back(step);
  if (options_.on_step) options_.on_step(step);
}

absl::StatusOr<double> Reference::Validate(int64_t step) {
  SerialModel& model = models_.front();
  double sum = 0.0;
  std::vector<int32_t> tokens(job_.microbatch.batch * job_.microbatch.time);
  for (int64_t batch = 0; batch < job_.validation_batches; ++batch) {
    const int64_t first_window = FirstSample(job_, batch);
    data_->ReadValidation(first_window, TokenRole::kInput, absl::MakeSpan(tokens));
    PENSTOCK_ASSIGN_OR_RETURN(Tensor activation,
                              model.front().stage->TokensToDevice("token", tokens));
    data_->ReadValidation(first_window, TokenRole::kTarget, absl::MakeSpan(tokens));
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor targets,
                              model.back().stage->TokensToDevice("target", tokens));
    for (SerialStage& serial : model) {
      Stage& stage = *serial.stage;
      PENSTOCK_ASSIGN_OR_RETURN(activation, stage.Evaluate(stage.version(), activation,
                                                           stage.has_head() ? targets : Tensor()));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const double loss, model.back().stage->ReadLoss(activation));
    PENSTOCK_RETURN_IF_ERROR(CheckLoss(loss, step, static_cast<int32_t>(model.size() - 1)));
    sum += loss;
  }
  return sum / static_cast<double>(job_.validation_batches);
}

absl::Status Reference::Finish() {
  for (SerialStage& serial : models_.front()) {
    for (std::string& sha256 : serial.stage->LayerDigests()) {
      result_.layer_sha256.push_back(std::move(sha256));
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
