#include "worker/layer_profiler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/random.h"
#include "base/status.h"
#include "compute/stage.h"
#include "job/profile/model_profile.h"
#include "model/bundle.h"
#include "model/describe.h"
#include "worker/acquire.h"
#include "worker/layer_timer.h"
#include "worker/synthetic_data.h"

namespace penstock {
namespace {

constexpr int kWarmUpWindows = 1;
constexpr double kTensorDeviation = 0.5;  // of the numbers that are passed through
// Filled piece by piece: a tensor that the device can hold may be too large for the host.
constexpr int64_t kFillFloats = 1 << 20;
// Of a bundle whose copy is timed, and how often it is.
constexpr int64_t kBundleFloatsMax = 1 << 24;
constexpr int kBundleCopies = 9;

// Random purposes of the tensors, beside those of training.
enum Purpose : uint64_t { kInputs = 1, kGradients };

// To whole nanoseconds: the clock knows no more.
double Rounded(double ms) { return std::round(ms * 1e6) / 1e6; }

double MeanOf(absl::Span<const double> ms) {
  return std::accumulate(ms.begin(), ms.end(), 0.0) / static_cast<double>(ms.size());
}

// `sorted` without its first and its last quarter, which a few interruptions do not move.
template <typename T>
absl::Span<const T> MiddleHalf(absl::Span<const T> sorted) {
  const size_t quarter = sorted.size() / 4;
  return sorted.subspan(quarter, sorted.size() - 2 * quarter);
}

// The mean, and half the width of the middle half.
v1::MeasuredTime MeasuredTimeOf(std::vector<double> ms) {
  v1::MeasuredTime time;
  if (ms.empty()) return time;
  std::sort(ms.begin(), ms.end());
  const absl::Span<const double> middle = MiddleHalf(absl::MakeConstSpan(ms));
  time.set_ms(Rounded(MeanOf(ms)));
  time.set_spread_ms(Rounded((middle.back() - middle.front()) / 2.0));
  return time;
}

double MeanOfMiddleHalf(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return Rounded(MeanOf(MiddleHalf(absl::MakeConstSpan(ms))));
}

// Returns the windows of a run whose length is in the middle half. Means over the same windows add up, layers to a pass.
// Each layer's own middle half would leave out all interruptions, although every pass has some, each time in another layer.
std::vector<LayerTimer::Times> TypicalWindows(std::vector<LayerTimer::Times> windows) {
  const auto length_ns = [](const LayerTimer::Times& times) {
    int64_t sum_ns = 0;
    for (const std::vector<int64_t>& by_layer : times) {
      sum_ns = std::accumulate(by_layer.begin(), by_layer.end(), sum_ns);
    }
    return sum_ns;
  };
  std::stable_sort(windows.begin(), windows.end(),
                   [&](const auto& a, const auto& b) { return length_ns(a) < length_ns(b); });
  const auto middle = MiddleHalf(absl::MakeConstSpan(windows));
  return {middle.begin(), middle.end()};
}

// What is measured of all layers of one shape with microbatches of one size.
struct ShapeMeasurement {
  int64_t run_bytes = 0;         // at most, of a layer in a run of layers
  double update_alone_ms = 0.0;  // with nothing between two updates
  // By LayerTimer::Work: of one pass, or update.
  std::array<std::vector<double>, LayerTimer::kWorks> ms;
};

absl::StatusOr<std::unique_ptr<Stage>> CreateStage(Backend& backend, const ModelGraph& model,
                                                   LayerRange layers, int64_t samples,
                                                   const LayerProfilerOptions& options,
                                                   std::function<void(int layer)> on_layer) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage,
                            Stage::Create(backend, model,
                                          {.layers = layers,
                                           .ends = StageEnds::kLayers,
                                           .samples = samples,
                                           .precision = options.precision,
                                           .optimizer = options.optimizer,
                                           .seed = options.seed,
                                           .microbatches_in_flight_max = kWindowMicrobatches,
                                           .on_layer = std::move(on_layer)}));
  stage->InitializeWeights();
  return stage;
}

// A rate of 0 keeps the weights, so that all updates do the same.
absl::Status Update(Stage& stage, absl::Span<const float> gradient_scales) {
  return stage.Step(stage.version() + 1, {.gradient_scales = gradient_scales});
}

// Consecutive layers as a stage, and tensors to pass through it.
class RunOfLayers {
 public:
  // REQUIRES: all but `options` outlive this.
  static absl::StatusOr<std::unique_ptr<RunOfLayers>> Create(Backend& backend,
                                                             const ModelGraph& model,
                                                             LayerRange layers, int64_t samples,
                                                             const LayerProfilerOptions& options,
                                                             Clock& clock);

  // Runs kWindowMicrobatches microbatches and an update. `may_go_on` is asked before each pass. Returns what every layer
  // of the model took for all of them; of the update, the first one what all of them took.
  absl::StatusOr<const LayerTimer::Times*> RunWindow(
      const std::function<absl::Status()>& may_go_on);

 private:
  RunOfLayers(Backend& backend, const ModelGraph& model, LayerRange layers, int64_t samples,
              uint64_t seed)
      : backend_(backend),
        model_(model),
        layers_(layers),
        samples_(samples),
        data_(model.ports, samples, seed),
        gradient_scales_(model.size(), 1.0f) {}

  absl::Status MakeTensors(uint64_t seed);
  absl::StatusOr<Tensor> RandomTensor(const Shape& shape, RandomStream random);
  // Draws the ports of a window: where times depend on what they are (lengths), no window decides alone.
  absl::Status DrawPorts();

  Backend& backend_;
  const ModelGraph& model_;
  const LayerRange layers_;
  const int64_t samples_;
  const SyntheticData data_;
  const std::vector<float> gradient_scales_;  // by layer of the model
  std::unique_ptr<LayerTimer> timer_;
  std::unique_ptr<Stage> stage_;
  std::array<std::vector<Tensor>, kWindowMicrobatches> ports_;  // by microbatch
  int64_t next_sample_ = 0;
  Tensor input_;        // unless the first layer is among them
  Tensor grad_output_;  // unless the last one is
};

absl::StatusOr<std::unique_ptr<RunOfLayers>> RunOfLayers::Create(
    Backend& backend, const ModelGraph& model, LayerRange layers, int64_t samples,
    const LayerProfilerOptions& options, Clock& clock) {
  auto run = absl::WrapUnique(new RunOfLayers(backend, model, layers, samples, options.seed));
  constexpr int kPasses = 3 * kWindowMicrobatches + 1;  // F, I and W, and the update
  PENSTOCK_ASSIGN_OR_RETURN(
      run->timer_, LayerTimer::Create(backend, clock, model.size(), kPasses * (layers.count + 2)));
  LayerTimer* const timer = run->timer_.get();
  PENSTOCK_ASSIGN_OR_RETURN(run->stage_, CreateStage(backend, model, layers, samples, options,
                                                     [timer](int layer) { timer->Enter(layer); }));
  PENSTOCK_RETURN_IF_ERROR(run->MakeTensors(options.seed));
  return run;
}

absl::Status RunOfLayers::MakeTensors(uint64_t seed) {
  if (!stage_->is_first()) {
    PENSTOCK_ASSIGN_OR_RETURN(input_,
                              RandomTensor(stage_->input_shape(), RandomStream(seed, kInputs)));
  }
  if (!stage_->is_last()) {
    PENSTOCK_ASSIGN_OR_RETURN(
        grad_output_, RandomTensor(stage_->grad_output_shape(), RandomStream(seed, kGradients)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> RunOfLayers::RandomTensor(const Shape& shape, RandomStream random) {
  PENSTOCK_ASSIGN_OR_RETURN(Tensor tensor, AcquireTensor(backend_.pool(), DType::kF32, shape));
  auto* place = tensor.data<std::byte>();
  std::vector<float> values;
  for (int64_t left = shape.elements(); left > 0; left -= static_cast<int64_t>(values.size())) {
    values.resize(std::min(left, kFillFloats));
    for (float& value : values) value = static_cast<float>(kTensorDeviation * random.Normal());
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    backend_.CopyToDevice(place, values.data(), bytes);
    place += bytes;
  }
  return tensor;
}

absl::Status RunOfLayers::DrawPorts() {
  std::vector<std::byte> values;
  for (std::vector<Tensor>& ports : ports_) {
    ports.clear();
    for (const int port : stage_->ports()) {
      values.resize(samples_ * model_.ports[port].type.size_bytes());
      PENSTOCK_RETURN_IF_ERROR(
          data_.Read(Split::kTraining, next_sample_, port, absl::MakeSpan(values)));
      PENSTOCK_ASSIGN_OR_RETURN(ports.emplace_back(), stage_->PortToDevice(port, values));
    }
    next_sample_ += samples_;
  }
  return absl::OkStatus();
}

absl::StatusOr<const LayerTimer::Times*> RunOfLayers::RunWindow(
    const std::function<absl::Status()>& may_go_on) {
  PENSTOCK_RETURN_IF_ERROR(DrawPorts());
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  const int64_t version = stage_->version();
  const auto pass = [&](LayerTimer::Work work, int first, auto&& run) -> absl::Status {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    timer_->Begin(work, first);
    PENSTOCK_RETURN_IF_ERROR(run());
    timer_->End();
    return absl::OkStatus();
  };
  const int last = layers_.end() - 1;
  for (int i = 0; i < kWindowMicrobatches; ++i) {
    PENSTOCK_RETURN_IF_ERROR(pass(LayerTimer::kForward, layers_.first, [&] {
      return stage_->Forward(MicrobatchId(i), i * samples_, version, input_, ports_[i]).status();
    }));
  }
  for (int i = 0; i < kWindowMicrobatches; ++i) {
    PENSTOCK_RETURN_IF_ERROR(pass(LayerTimer::kBackwardInput, last, [&] {
      return stage_->BackwardInput(MicrobatchId(i), version, grad_output_, 1.0f).status();
    }));
    PENSTOCK_RETURN_IF_ERROR(pass(LayerTimer::kBackwardWeight, last,
                                  [&] { return stage_->BackwardWeight(MicrobatchId(i)); }));
  }
  PENSTOCK_RETURN_IF_ERROR(
      pass(LayerTimer::kUpdate, layers_.first, [&] { return Update(*stage_, gradient_scales_); }));
  return timer_->Take();
}

// Measures a profile: its steps share what is found about each shape of a layer.
class Profiler {
 public:
  Profiler(Backend& backend, const ModelGraph& model, const LayerProfilerOptions& options,
           Clock& clock, const std::function<absl::Status(const ProfilerProgress&)>& on_progress,
           v1::ModelProfile& profile);

  // Measures all layers with microbatches of `samples`.
  absl::Status MeasureSize(int64_t samples);
  void SetUpdates();

 private:
  int shapes() const { return static_cast<int>(firsts_.size()); }
  // Measures what a layer needs by itself, all but its times in a run.
  absl::Status MeasureAlone(int shape, int64_t samples, v1::SizeProfile& size);
  absl::StatusOr<double> UpdateAloneMs(Stage& stage);
  // The layers from `first` on that may be run together: as many as there is memory for, and one at least.
  LayerRange RunFrom(int first) const;
  absl::Status MeasureRun(LayerRange layers, int64_t samples);
  // Adds what a window took.
  void Take(LayerRange layers, const LayerTimer::Times& times);
  std::string NameOf(LayerRange layers) const;
  // `layers` are the ones that are run next, `done` of them already.
  absl::Status Report(LayerRange layers, double done, int64_t samples);

  Backend& backend_;
  const ModelGraph& model_;
  const LayerProfilerOptions& options_;
  Clock& clock_;
  const std::function<absl::Status(const ProfilerProgress&)>& on_progress_;
  v1::ModelProfile& profile_;
  const std::vector<int> firsts_;           // by shape: the first layer that has it
  std::vector<int> shape_of_;               // by layer
  std::vector<ShapeMeasurement> of_shape_;  // of this size, but for updates, which are of all
  ProfilerProgress progress_;
  int sizes_done_ = 0;
};

Profiler::Profiler(Backend& backend, const ModelGraph& model, const LayerProfilerOptions& options,
                   Clock& clock,
                   const std::function<absl::Status(const ProfilerProgress&)>& on_progress,
                   v1::ModelProfile& profile)
    : backend_(backend),
      model_(model),
      options_(options),
      clock_(clock),
      on_progress_(on_progress),
      profile_(profile),
      firsts_(FirstLayersOfShapes(model)),
      of_shape_(firsts_.size()) {
  std::map<std::string, int> numbers;
  for (int layer = 0; layer < model.size(); ++layer) {
    const std::string shape = DescribeWork(model, model.layers[layer]);
    const auto [entry, is_first] = numbers.emplace(shape, static_cast<int>(numbers.size()));
    shape_of_.push_back(entry->second);
    if (is_first) profile.add_shapes()->set_shape(shape);
  }
  progress_.total = shapes() * static_cast<int>(options.samples.size());
  progress_.done = -1;
}

absl::Status Profiler::Report(LayerRange layers, double done, int64_t samples) {
  progress_.samples = samples;
  progress_.layers = NameOf(layers);
  const double part = (layers.first + done * layers.count) / model_.size();
  const int whole = shapes() * sizes_done_ + static_cast<int>(shapes() * part);
  if (whole <= progress_.done) return absl::OkStatus();
  progress_.done = whole;
  return on_progress_(progress_);
}

std::string Profiler::NameOf(LayerRange layers) const {
  const std::string& first = model_.layers[layers.first].name;
  return layers.count == 1 ? first
                           : absl::StrCat(first, " to ", model_.layers[layers.end() - 1].name);
}

absl::StatusOr<double> Profiler::UpdateAloneMs(Stage& stage) {
  const std::vector<float> scales(model_.size(), 1.0f);
  std::vector<double> ms;
  for (int i = 0; i < kWarmUpWindows + options_.windows_min; ++i) {
    PENSTOCK_RETURN_IF_ERROR(options_.may_go_on());
    const int64_t start_ns = clock_.MonotonicNs();
    PENSTOCK_RETURN_IF_ERROR(Update(stage, scales));
    PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
    if (i >= kWarmUpWindows) ms.push_back((clock_.MonotonicNs() - start_ns) * 1e-6);
  }
  return MeanOfMiddleHalf(std::move(ms));
}

absl::Status Profiler::MeasureAlone(int shape, int64_t samples, v1::SizeProfile& size) {
  PENSTOCK_RETURN_IF_ERROR(options_.may_go_on());
  backend_.TakeScratchNeeds();  // of what was made before
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<Stage> stage,
      CreateStage(backend_, model_, {firsts_[shape], 1}, samples, options_, nullptr));
  const ScratchBytes scratch = backend_.TakeScratchNeeds();
  const Stage::MemoryStats memory = stage->memory();
  v1::ShapeProfile& profile = *profile_.mutable_shapes(shape);
  profile.set_weight_bytes(memory.version_bytes + memory.frozen_bytes);
  profile.set_gradient_bytes(memory.gradient_bytes);
  profile.set_optimizer_bytes(memory.optimizer_bytes);
  size.set_samples(samples);
  size.set_pass_scratch_bytes(scratch.of_pass);
  size.set_library_scratch_bytes(scratch.of_library);
  for (const TapeNeeds& needs : stage->tape_needs()) {
    v1::NodeMemory& node = *size.add_nodes();
    node.set_stash_bytes(needs.stash_bytes);
    node.set_kept_bytes(needs.kept_bytes);
    node.set_weight_stash_bytes(needs.weight_stash_bytes);
    node.set_inputs_for_input(needs.inputs_for_input);
    node.set_inputs_for_weight(needs.inputs_for_weight);
    node.set_output_for_input(needs.output_for_input);
    node.set_grad_output_for_weight(needs.grad_output_for_weight);
    node.set_passes_input(needs.passes_input);
    node.set_passes_gradient(needs.passes_gradient);
  }
  ShapeMeasurement& measured = of_shape_[shape];
  const ActivationBytes& activations = stage->activation_bytes();
  measured.run_bytes = memory.version_bytes + memory.frozen_bytes + memory.gradient_bytes +
                       memory.optimizer_bytes +
                       kWindowMicrobatches * (activations.forward.most + activations.ports);
  if (!options_.times) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(measured.update_alone_ms, UpdateAloneMs(*stage));
  return absl::OkStatus();
}

LayerRange Profiler::RunFrom(int first) const {
  const int64_t bytes_max = options_.memory_bytes > 0 ? options_.memory_bytes
                                                      : backend_.memory_bytes(/*processes=*/1) / 2;
  int64_t bytes = 0;
  int end = first;
  do {
    bytes += of_shape_[shape_of_[end++]].run_bytes;
  } while (end < model_.size() && bytes + of_shape_[shape_of_[end]].run_bytes <= bytes_max);
  return {first, end - first};
}

void Profiler::Take(LayerRange layers, const LayerTimer::Times& times) {
  double update_alone_ms = 0.0;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    update_alone_ms += of_shape_[shape_of_[layer]].update_alone_ms;
  }
  const double update_ms = times[LayerTimer::kUpdate][layers.first] * 1e-6;
  for (int layer = layers.first; layer < layers.end(); ++layer) {
    ShapeMeasurement& measured = of_shape_[shape_of_[layer]];
    for (const int work :
         {LayerTimer::kForward, LayerTimer::kBackwardInput, LayerTimer::kBackwardWeight}) {
      measured.ms[work].push_back(times[work][layer] * 1e-6 / kWindowMicrobatches);
    }
    measured.ms[LayerTimer::kUpdate].push_back(
        update_alone_ms > 0.0 ? update_ms * measured.update_alone_ms / update_alone_ms : 0.0);
  }
}

absl::Status Profiler::MeasureRun(LayerRange layers, int64_t samples) {
  PENSTOCK_RETURN_IF_ERROR(Report(layers, 0.0, samples));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunOfLayers> run,
      RunOfLayers::Create(backend_, model_, layers, samples, options_, clock_));
  for (int i = 0; i < kWarmUpWindows; ++i) {
    PENSTOCK_RETURN_IF_ERROR(run->RunWindow(options_.may_go_on).status());
  }
  const std::set<int> shapes_here(&shape_of_[layers.first],
                                  &shape_of_[layers.first] + layers.count);
  const double seconds = options_.seconds * static_cast<double>(shapes_here.size());
  const int64_t start_ns = clock_.MonotonicNs();
  std::vector<LayerTimer::Times> windows;
  for (int i = 0; i < options_.windows_max; ++i) {
    const double spent_s = static_cast<double>(clock_.MonotonicNs() - start_ns) * 1e-9;
    if (i >= options_.windows_min && spent_s >= seconds) break;
    const double by_windows = static_cast<double>(i) / std::max(options_.windows_min, 1);
    const double by_time = seconds > 0.0 ? spent_s / seconds : 1.0;
    PENSTOCK_RETURN_IF_ERROR(Report(layers, std::min({by_windows, by_time, 1.0}), samples));
    PENSTOCK_ASSIGN_OR_RETURN(const LayerTimer::Times* const times,
                              run->RunWindow(options_.may_go_on));
    windows.push_back(*times);
  }
  for (const LayerTimer::Times& times : TypicalWindows(std::move(windows))) Take(layers, times);
  return absl::OkStatus();
}

absl::Status Profiler::MeasureSize(int64_t samples) {
  std::vector<v1::SizeProfile> sizes(firsts_.size());
  for (int shape = 0; shape < shapes(); ++shape) {
    const absl::Status done = MeasureAlone(shape, samples, sizes[shape]);
    if (!done.ok()) {
      return Annotate(done, absl::StrCat("profiling ", model_.layers[firsts_[shape]].name, " with ",
                                         samples, " samples"));
    }
  }
  for (int first = 0; first < model_.size() && options_.times;) {
    const LayerRange layers = RunFrom(first);
    const absl::Status done = MeasureRun(layers, samples);
    if (!done.ok()) {
      return Annotate(done,
                      absl::StrCat("profiling ", NameOf(layers), " with ", samples, " samples"));
    }
    first = layers.end();
  }
  for (int shape = 0; shape < shapes(); ++shape) {
    const auto take = [&](LayerTimer::Work work) {
      return MeasuredTimeOf(std::exchange(of_shape_[shape].ms[work], {}));
    };
    *sizes[shape].mutable_forward() = take(LayerTimer::kForward);
    *sizes[shape].mutable_backward_input() = take(LayerTimer::kBackwardInput);
    *sizes[shape].mutable_backward_weight() = take(LayerTimer::kBackwardWeight);
    *profile_.mutable_shapes(shape)->add_sizes() = std::move(sizes[shape]);
  }
  ++sizes_done_;
  return absl::OkStatus();
}

void Profiler::SetUpdates() {
  for (int shape = 0; shape < shapes(); ++shape) {
    *profile_.mutable_shapes(shape)->mutable_update() =
        MeasuredTimeOf(std::move(of_shape_[shape].ms[LayerTimer::kUpdate]));
  }
}

// Measures what it takes to copy the values of a cut together, and to make values of what comes, for the cut of the
// model that most crosses.
absl::StatusOr<v1::BundleTimes> MeasureBundles(Backend& backend, const ModelGraph& model,
                                               const LayerProfilerOptions& options, Clock& clock) {
  int64_t elements = 0;
  for (int cut = 1; cut < model.size(); ++cut) {
    elements = std::max(elements, ActivationsAt(model, cut, options.samples.back()).elements);
  }
  elements = std::min(elements, kBundleFloatsMax);
  v1::BundleTimes times;
  if (elements == 0) return times;
  const DType crossing = CrossingType(options.precision);
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor values,
                            AcquireTensor(backend.pool(), DType::kF32, {elements}));
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor bundle,
                            AcquireTensor(backend.pool(), crossing, {elements}));
  backend.Fill(values.data<float>(), 1.0f, elements);
  const double megabytes = static_cast<double>(elements * SizeOf(crossing)) * 1e-6;
  std::vector<double> pack_ms, unpack_ms;
  const auto run = [&](std::vector<double>& ms, auto&& copy) -> absl::Status {
    const int64_t start_ns = clock.MonotonicNs();
    copy();
    PENSTOCK_RETURN_IF_ERROR(backend.Synchronize());
    ms.push_back(static_cast<double>(clock.MonotonicNs() - start_ns) * 1e-6 / megabytes);
    return absl::OkStatus();
  };
  for (int i = 0; i < kBundleCopies; ++i) {
    PENSTOCK_RETURN_IF_ERROR(options.may_go_on());
    PENSTOCK_RETURN_IF_ERROR(run(pack_ms, [&] {
      if (crossing == DType::kF32) {
        backend.CopyOnDevice(bundle.data<float>(), values.data<float>(), bundle.size_bytes());
      } else {
        backend.ConvertToBf16(bundle.data<uint16_t>(), values.data<float>(), elements);
      }
    }));
    if (crossing == DType::kF32) continue;  // views will do
    PENSTOCK_RETURN_IF_ERROR(run(unpack_ms, [&] {
      backend.ConvertFromBf16(values.data<float>(), bundle.data<uint16_t>(), elements);
    }));
  }
  times.set_pack_ms_per_megabyte(MeanOfMiddleHalf(std::move(pack_ms)));
  if (!unpack_ms.empty()) {
    times.set_unpack_ms_per_megabyte(MeanOfMiddleHalf(std::move(unpack_ms)));
  }
  return times;
}

absl::Status CheckSizes(absl::Span<const int64_t> samples) {
  if (samples.empty()) {
    return absl::InvalidArgumentError("a profile needs a size of the microbatches");
  }
  int64_t least = 1;
  for (const int64_t size : samples) {
    if (size < least) {
      return absl::InvalidArgumentError(
          absl::StrCat("sizes of the microbatches: ", size, " where ", least,
                       " or more was expected (ascending, each once)"));
    }
    least = size + 1;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ModelProfile> ProfileLayers(
    Backend& backend, const ModelGraph& model, const LayerProfilerOptions& options, Clock& clock,
    const std::function<absl::Status(const ProfilerProgress&)>& on_progress) {
  PENSTOCK_RETURN_IF_ERROR(CheckSizes(options.samples));
  v1::ModelProfile profile;
  profile.set_device(std::string(backend.name()));
  profile.set_precision(std::string(PrecisionName(options.precision)));
  profile.set_optimizer(std::string(KindOf(options.optimizer)));
  profile.set_time_steps(model.targets_per_sample());
  SetLayers(model, options.precision, profile);
  PENSTOCK_ASSIGN_OR_RETURN(*profile.mutable_bundles(),
                            MeasureBundles(backend, model, options, clock));
  Profiler profiler(backend, model, options, clock, on_progress, profile);
  for (const int64_t samples : options.samples) {
    PENSTOCK_RETURN_IF_ERROR(profiler.MeasureSize(samples));
  }
  profiler.SetUpdates();
  return profile;
}

}  // namespace penstock
