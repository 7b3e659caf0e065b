#include "worker/layer_profiler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status.h"
#include "compute/stage.h"
#include "job/profile/model_profile.h"
#include "model/bundle.h"
#include "model/describe.h"
#include "worker/acquire.h"

namespace penstock {
namespace {

constexpr int kWarmUpWindows = 2;
constexpr double kTensorDeviation = 0.5;  // of the numbers that are passed through
// Filled piece by piece: a tensor that the device can hold may be too large for the host.
constexpr int64_t kFillFloats = 1 << 20;
// Of a bundle whose copy is timed, and how often it is.
constexpr int64_t kBundleFloatsMax = 1 << 24;
constexpr int kBundleCopies = 9;

// Random purposes of the tensors, beside those of training.
enum Purpose : uint64_t { kInputs = 1, kGradients, kPorts };  // kPorts: and above

struct Durations {
  std::vector<double> forward_ms, backward_input_ms, backward_weight_ms, update_ms;
};

// To whole nanoseconds: the clock knows no more.
double Rounded(double ms) { return std::round(ms * 1e6) / 1e6; }

v1::MeasuredTime MeasuredTimeOf(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const auto quantile = [&](double at) {
    return ms[static_cast<size_t>(std::lround(at * static_cast<double>(ms.size() - 1)))];
  };
  v1::MeasuredTime time;
  time.set_ms(Rounded(quantile(0.5)));
  time.set_spread_ms(Rounded((quantile(0.75) - quantile(0.25)) / 2.0));
  return time;
}

// One layer as a stage, and tensors to pass through it.
class LayerBench {
 public:
  static absl::StatusOr<std::unique_ptr<LayerBench>> Create(Backend& backend,
                                                            const ModelGraph& model, int layer,
                                                            int64_t samples,
                                                            const LayerProfilerOptions& options);

  // Runs kWindowMicrobatches microbatches and an update. Appends the time of one pass of each kind.
  absl::Status RunWindow(Clock& clock, Durations& durations);

  const Stage& stage() const { return *stage_; }

 private:
  LayerBench(Backend& backend, int64_t samples) : backend_(backend), samples_(samples) {}

  absl::Status MakeTensors(const ModelGraph& model, uint64_t seed);
  absl::StatusOr<Tensor> RandomTensor(const Shape& shape, RandomStream random);
  // Ids that the model can look up; other values are those of the data, so that any will do.
  absl::StatusOr<Tensor> RandomPort(int port, const Port& spec, RandomStream random);
  // Returns the milliseconds that the device takes for one of the passes.
  template <typename Pass>
  absl::StatusOr<double> Time(Clock& clock, int passes, Pass&& pass);

  Backend& backend_;
  const int64_t samples_;
  std::unique_ptr<Stage> stage_;
  std::vector<Tensor> ports_;
  Tensor input_;                        // of all but the first layer
  Tensor grad_output_;                  // of all but the last layer
  std::vector<float> gradient_scales_;  // by layer of the model
};

absl::StatusOr<std::unique_ptr<LayerBench>> LayerBench::Create(
    Backend& backend, const ModelGraph& model, int layer, int64_t samples,
    const LayerProfilerOptions& options) {
  auto bench = absl::WrapUnique(new LayerBench(backend, samples));
  PENSTOCK_ASSIGN_OR_RETURN(bench->stage_,
                            Stage::Create(backend, model,
                                          {.layers = {layer, 1},
                                           .ends = StageEnds::kLayers,
                                           .samples = samples,
                                           .precision = options.precision,
                                           .optimizer = options.optimizer,
                                           .seed = options.seed,
                                           .microbatches_in_flight_max = kWindowMicrobatches}));
  bench->stage_->InitializeWeights();
  bench->gradient_scales_.assign(model.size(), 1.0f);
  PENSTOCK_RETURN_IF_ERROR(bench->MakeTensors(model, options.seed));
  return bench;
}

absl::Status LayerBench::MakeTensors(const ModelGraph& model, uint64_t seed) {
  for (const int port : stage_->ports()) {
    PENSTOCK_ASSIGN_OR_RETURN(ports_.emplace_back(), RandomPort(port, model.ports[port],
                                                                RandomStream(seed, kPorts + port)));
  }
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

absl::StatusOr<Tensor> LayerBench::RandomTensor(const Shape& shape, RandomStream random) {
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

absl::StatusOr<Tensor> LayerBench::RandomPort(int port, const Port& spec, RandomStream random) {
  std::vector<std::byte> values(samples_ * spec.type.size_bytes());
  const int64_t elements = samples_ * spec.type.elements();
  if (spec.type.dtype == DType::kI32) {
    auto* ids = reinterpret_cast<int32_t*>(values.data());
    const int64_t range = spec.ids > 0 ? spec.ids : 2;
    for (int64_t i = 0; i < elements; ++i) ids[i] = static_cast<int32_t>(random.Below(range));
  } else if (spec.type.dtype == DType::kF32) {
    auto* numbers = reinterpret_cast<float*>(values.data());
    for (int64_t i = 0; i < elements; ++i) numbers[i] = static_cast<float>(random.Normal());
  } else {
    for (std::byte& value : values) value = static_cast<std::byte>(random.Below(256));
  }
  return stage_->PortToDevice(port, values);
}

template <typename Pass>
absl::StatusOr<double> LayerBench::Time(Clock& clock, int passes, Pass&& pass) {
  const int64_t start_ns = clock.MonotonicNs();
  for (int i = 0; i < passes; ++i) PENSTOCK_RETURN_IF_ERROR(pass(i));
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  return static_cast<double>(clock.MonotonicNs() - start_ns) * 1e-6 / passes;
}

absl::Status LayerBench::RunWindow(Clock& clock, Durations& durations) {
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  const int64_t version = stage_->version();
  const auto run = [&](std::vector<double>& ms, int passes, auto&& pass) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(const double taken, Time(clock, passes, pass));
    ms.push_back(taken);
    return absl::OkStatus();
  };
  PENSTOCK_RETURN_IF_ERROR(run(durations.forward_ms, kWindowMicrobatches, [&](int i) {
    return stage_->Forward(MicrobatchId(i), i * samples_, version, input_, ports_).status();
  }));
  PENSTOCK_RETURN_IF_ERROR(run(durations.backward_input_ms, kWindowMicrobatches, [&](int i) {
    return stage_->BackwardInput(MicrobatchId(i), version, grad_output_, 1.0f).status();
  }));
  PENSTOCK_RETURN_IF_ERROR(run(durations.backward_weight_ms, kWindowMicrobatches,
                               [&](int i) { return stage_->BackwardWeight(MicrobatchId(i)); }));
  // A rate of 0 keeps the weights, so that all windows do the same.
  return run(durations.update_ms, 1,
             [&](int) { return stage_->Step(version + 1, {.gradient_scales = gradient_scales_}); });
}

// Measures a layer with microbatches of one size. The update and the bytes that do not depend on the size
// go into `profile`.
absl::StatusOr<v1::SizeProfile> MeasureSize(Backend& backend, const ModelGraph& model, int layer,
                                            int64_t samples, const LayerProfilerOptions& options,
                                            Clock& clock, v1::ShapeProfile& profile) {
  backend.TakeScratchNeeds();  // of what was made before
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<LayerBench> bench,
                            LayerBench::Create(backend, model, layer, samples, options));
  const ScratchBytes scratch = backend.TakeScratchNeeds();
  Durations warm_up;
  for (int i = 0; i < kWarmUpWindows; ++i) {
    PENSTOCK_RETURN_IF_ERROR(options.may_go_on());
    PENSTOCK_RETURN_IF_ERROR(bench->RunWindow(clock, warm_up));
  }
  Durations durations;
  const int64_t start_ns = clock.MonotonicNs();
  for (int i = 0; i < options.windows_max; ++i) {
    const double spent_s = static_cast<double>(clock.MonotonicNs() - start_ns) * 1e-9;
    if (i >= options.windows_min && spent_s >= options.seconds) break;
    PENSTOCK_RETURN_IF_ERROR(options.may_go_on());
    PENSTOCK_RETURN_IF_ERROR(bench->RunWindow(clock, durations));
  }
  const Stage::MemoryStats memory = bench->stage().memory();
  profile.set_weight_bytes(memory.version_bytes);
  profile.set_gradient_bytes(memory.gradient_bytes);
  profile.set_optimizer_bytes(memory.optimizer_bytes);
  *profile.mutable_update() = MeasuredTimeOf(durations.update_ms);

  v1::SizeProfile size;
  size.set_samples(samples);
  *size.mutable_forward() = MeasuredTimeOf(durations.forward_ms);
  *size.mutable_backward_input() = MeasuredTimeOf(durations.backward_input_ms);
  *size.mutable_backward_weight() = MeasuredTimeOf(durations.backward_weight_ms);
  size.set_pass_scratch_bytes(scratch.of_pass);
  size.set_library_scratch_bytes(scratch.of_library);
  for (const TapeNeeds& needs : bench->stage().tape_needs()) {
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
  return size;
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
  times.set_pack_ms_per_megabyte(MeasuredTimeOf(std::move(pack_ms)).ms());
  if (!unpack_ms.empty()) {
    times.set_unpack_ms_per_megabyte(MeasuredTimeOf(std::move(unpack_ms)).ms());
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
  profile.set_precision(options.precision == Precision::kBf16 ? "bf16" : "f32");
  profile.set_optimizer(std::string(KindOf(options.optimizer)));
  profile.set_time_steps(model.targets_per_sample());
  SetLayers(model, options.precision, profile);
  PENSTOCK_ASSIGN_OR_RETURN(*profile.mutable_bundles(),
                            MeasureBundles(backend, model, options, clock));
  const std::vector<int> firsts = FirstLayersOfShapes(model);
  ProfilerProgress progress = {.total = static_cast<int>(firsts.size() * options.samples.size())};
  for (const int layer : firsts) {
    progress.layer = model.layers[layer].name;
    v1::ShapeProfile& shape = *profile.add_shapes();
    shape.set_shape(Describe(model, model.layers[layer]));
    for (const int64_t samples : options.samples) {
      progress.samples = samples;
      PENSTOCK_RETURN_IF_ERROR(on_progress(progress));
      absl::StatusOr<v1::SizeProfile> size =
          MeasureSize(backend, model, layer, samples, options, clock, shape);
      if (!size.ok()) {
        return Annotate(size.status(),
                        absl::StrCat("profiling ", progress.layer, " with ", samples, " samples"));
      }
      *shape.add_sizes() = *std::move(size);
      ++progress.done;
    }
  }
  return profile;
}

}  // namespace penstock
