// Stage: weights and optimizer state to and from the host.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status.h"
#include "compute/array_bytes.h"
#include "compute/initial_weights.h"
#include "compute/stage.h"

namespace penstock {
namespace {

// What is frozen has one version for ever.
constexpr uint32_t kRoundingOfFrozen = 0;

std::string StateName(const ParameterSpec& parameter, absl::string_view suffix) {
  return suffix.empty() ? parameter.name : absl::StrCat(parameter.name, ".", suffix);
}

// "motion" of "h.0.mlp.c_fc.weight.motion".
absl::string_view SuffixOf(absl::string_view state_name) {
  return state_name.substr(state_name.rfind('.') + 1);
}

// State that a checkpoint may lack, or have for nothing.
bool IsHistory(absl::string_view slot) {
  const absl::Span<const absl::string_view> names = HistoryStateNames();
  return slot == kWeightAverageState || std::find(names.begin(), names.end(), slot) != names.end();
}

const NamedArray* FindArray(absl::Span<const NamedArray> arrays, const std::string& name) {
  const auto found = std::find_if(arrays.begin(), arrays.end(),
                                  [&](const NamedArray& array) { return array.name == name; });
  return found == arrays.end() ? nullptr : &*found;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

template <typename Spec>
absl::Status CheckArray(const NamedArray* array, const std::string& name, const Spec& parameter) {
  if (array == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat("tensor %s is missing", name));
  }
  if (array->shape != parameter.shape ||
      static_cast<int64_t>(array->values.size()) != parameter.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tensor %s has shape %s with %d values, but the model expects %s", name,
                        ShapeText(array->shape), array->values.size(), ShapeText(parameter.shape)));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ParametersDigest(absl::Span<const NamedArray> parameters) {
  Sha256 digest;
  for (const NamedArray& array : parameters) {
    digest.Update(array.values.data(), array.values.size() * sizeof(float));
  }
  return digest.HexDigest();
}

void Stage::InitializeWeights() {
  for (int layer = 0; layer < layer_count(); ++layer) {
    const std::vector<ParameterSpec>& parameters = layer_spec(layer).parameters;
    for (size_t p = 0; p < parameters.size(); ++p) {
      float* const place = WeightPlace(layer, p);
      if (place == nullptr) continue;
      const std::vector<float> values = InitialWeights(parameters[p], options_.seed);
      backend_.CopyToDevice(place, values.data(), parameters[p].size() * SizeOf(DType::kF32));
    }
  }
  RefreshMirror();
  RefreshFrozenMirror();
  for (float* array : state_arrays_) {
    if (array != nullptr) backend_.Fill(array, 0.0f, arena_.trained_count());
  }
  history_.Forget();
  average_.Begin(versions_.current());
  ResetBuffers();
}

void Stage::ForBuffers(int layer, absl::FunctionRef<void(const BufferSpec&, float*)> visit) {
  for (int n = 0; n < plan_.node_count; ++n) {
    if (layer_of_node_[n] != layer) continue;
    for (size_t i = 0; i < node(n).buffers.size(); ++i) {
      const BufferSpec& buffer = node(n).buffers[i];
      if (!IsStored(buffer)) continue;
      visit(KeptHere(node(n).buffers[i]),
            static_cast<float*>(buffers_.data()) + buffer_layout_.offsets[n][i]);
    }
  }
}

BufferSpec Stage::KeptHere(const BufferSpec& buffer) const {
  BufferSpec kept = buffer;
  if (kept.kind == BufferSpec::Kind::kCarried) {
    kept.shape.insert(kept.shape.begin(), options_.step_samples);
  }
  return kept;
}

void Stage::ResetBuffers() {
  for (int layer = 0; layer < layer_count(); ++layer) {
    ForBuffers(layer, [this](const BufferSpec& buffer, float* device) {
      backend_.Fill(device, static_cast<float>(buffer.initial), buffer.size());
    });
  }
  std::fill(last_samples_.begin(), last_samples_.end(), -1);
}

void Stage::RefreshMirror() {
  const WeightVersions::Version& version = versions_.current();
  if (version.mirror() == nullptr) return;
  if (options_.rounding == Rounding::kNearest) {
    backend_.ConvertToBf16(version.mirror(), version.weights(), arena_.weight_count());
    return;
  }
  // The step that made this version rounded it like this.
  StochasticRounding rounding = {.key = KeyOfRounding(options_.seed),
                                 .version = static_cast<uint32_t>(steps_)};
  const auto round = [&](absl::Span<const ParameterSlice> slices) {
    for (const ParameterSlice& slice : slices) {
      rounding.parameter = slice.identity;
      backend_.ConvertToBf16(version.mirror() + slice.offset, version.weights() + slice.offset,
                             slice.count, rounding);
    }
  };
  for (int layer = 0; layer < layer_count(); ++layer) round(arena_.slices(layer));
  rounding.version = kRoundingOfFrozen;
  round(arena_.kept_slices());
}

void Stage::RefreshFrozenMirror() {
  if (!frozen_.bf16) return;
  auto* const mirror = static_cast<uint16_t*>(frozen_.bf16.data());
  const auto* const weights = static_cast<const float*>(frozen_.f32.data());
  if (options_.rounding == Rounding::kNearest) {
    backend_.ConvertToBf16(mirror, weights, arena_.frozen_count());
    return;
  }
  StochasticRounding rounding = {.key = KeyOfRounding(options_.seed), .version = kRoundingOfFrozen};
  for (const ParameterSlice& slice : arena_.apart_slices()) {
    rounding.parameter = slice.identity;
    backend_.ConvertToBf16(mirror + slice.offset, weights + slice.offset, slice.count, rounding);
  }
}

float* Stage::WeightPlace(int layer, size_t parameter) const {
  const bool apart = arena_.is_apart(layer, static_cast<int>(parameter));
  float* const array =
      apart ? static_cast<float*>(frozen_.f32.data()) : versions_.current().weights();
  if (array == nullptr) return nullptr;
  return array + arena_.weight_offsets(layer)[parameter];
}

float* Stage::StatePlace(int layer, size_t parameter, float* array) const {
  if (array == nullptr || layer_spec(layer).parameters[parameter].frozen) return nullptr;
  return array + arena_.weight_offsets(layer)[parameter];
}

float* Stage::VersionPlace(int layer, size_t parameter, float* array) const {
  if (arena_.is_apart(layer, static_cast<int>(parameter))) return nullptr;
  return array + arena_.weight_offsets(layer)[parameter];
}

std::vector<NamedArray> Stage::CopyOut(int layer, absl::string_view suffix, PlaceOf place) {
  std::vector<NamedArray> arrays;
  std::set<std::string> names;
  const std::vector<ParameterSpec>& parameters = layer_spec(layer).parameters;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (!names.insert(parameters[p].name).second) continue;  // of another node of the layer, too
    const float* const from = place(p);
    if (from == nullptr) continue;
    NamedArray copy{StateName(parameters[p], suffix), parameters[p].shape,
                    std::vector<float>(parameters[p].size())};
    backend_.CopyToHost(copy.values.data(), from, parameters[p].size() * SizeOf(DType::kF32));
    arrays.push_back(std::move(copy));
  }
  return arrays;
}

std::vector<NamedArray> Stage::LayerWeights(int layer) {
  std::vector<NamedArray> arrays =
      CopyOut(layer, "", [&](size_t p) { return WeightPlace(layer, p); });
  ForBuffers(layer, [&](const BufferSpec& buffer, const float* device) {
    NamedArray& copy = arrays.emplace_back(
        NamedArray{buffer.name, buffer.shape, std::vector<float>(buffer.size())});
    backend_.CopyToHost(copy.values.data(), device, buffer.size() * SizeOf(DType::kF32));
  });
  return arrays;
}

std::vector<NamedArray> Stage::LayerGradients(int layer) {
  return CopyOut(layer, "", [&](size_t p) {
    const bool frozen = layer_spec(layer).parameters[p].frozen;
    return frozen ? nullptr : gradients() + arena_.gradient_offsets(layer)[p];
  });
}

std::vector<NamedArray> Stage::LayerOptimizerState(int layer) {
  std::vector<NamedArray> all;
  for (size_t slot = 0; slot < state_arrays_.size(); ++slot) {
    std::vector<NamedArray> arrays = CopyOut(layer, state_names_[slot], [&](size_t p) {
      return StatePlace(layer, p, state_arrays_[slot]);
    });
    std::move(arrays.begin(), arrays.end(), std::back_inserter(all));
  }
  return all;
}

absl::Status Stage::CheckArrays(int layer, absl::Span<const absl::string_view> suffixes,
                                absl::Span<const NamedArray> arrays) const {
  std::vector<std::string> expected;
  for (const absl::string_view suffix : suffixes) {
    for (const ParameterSpec& parameter : layer_spec(layer).parameters) {
      if (parameter.frozen && !suffix.empty()) continue;
      expected.push_back(StateName(parameter, suffix));
      PENSTOCK_RETURN_IF_ERROR(
          Annotate(CheckArray(FindArray(arrays, expected.back()), expected.back(), parameter),
                   layer_spec(layer).name));
    }
  }
  if (suffixes.size() == 1 && suffixes.front().empty()) {  // weights, with which buffers go
    for (int n = 0; n < plan_.node_count; ++n) {
      if (layer_of_node_[n] != layer) continue;
      for (const BufferSpec& buffer : node(n).buffers) {
        expected.push_back(buffer.name);
        if (!IsStored(buffer)) continue;
        PENSTOCK_RETURN_IF_ERROR(
            Annotate(CheckArray(FindArray(arrays, buffer.name), buffer.name, KeptHere(buffer)),
                     layer_spec(layer).name));
      }
    }
  }
  for (const NamedArray& array : arrays) {
    const bool known = std::find(expected.begin(), expected.end(), array.name) != expected.end();
    if (!known && !IsHistory(SuffixOf(array.name))) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: unexpected tensor %s; expected %s",
                                                        layer_spec(layer).name, array.name,
                                                        absl::StrJoin(expected, ", ")));
    }
  }
  return absl::OkStatus();
}

void Stage::CopyIn(int layer, absl::string_view suffix, absl::Span<const NamedArray> arrays,
                   PlaceOf place) {
  const std::vector<ParameterSpec>& parameters = layer_spec(layer).parameters;
  for (size_t p = 0; p < parameters.size(); ++p) {
    float* const to = place(p);
    if (to == nullptr) continue;
    const NamedArray* source = FindArray(arrays, StateName(parameters[p], suffix));
    backend_.CopyToDevice(to, source->values.data(), parameters[p].size() * SizeOf(DType::kF32));
  }
}

absl::Status Stage::LoadLayerWeights(int layer, absl::Span<const NamedArray> arrays) {
  PENSTOCK_RETURN_IF_ERROR(CheckArrays(layer, {""}, arrays));
  CopyIn(layer, "", arrays, [&](size_t p) { return WeightPlace(layer, p); });
  if (average_.exists()) {
    CopyIn(layer, "", arrays, [&](size_t p) { return VersionPlace(layer, p, average_.array()); });
    average_.Forget();
  }
  ForBuffers(layer, [&](const BufferSpec& buffer, float* device) {
    backend_.CopyToDevice(device, FindArray(arrays, buffer.name)->values.data(),
                          buffer.size() * SizeOf(DType::kF32));
  });
  std::fill(last_samples_.begin(), last_samples_.end(), -1);
  RefreshMirror();
  RefreshFrozenMirror();
  history_.Forget();
  return absl::OkStatus();
}

// A history that is kept here and not stored stays empty, and an average stays the weights; one that is stored and not kept is left out.
absl::Status Stage::LoadLayerOptimizerState(int layer, absl::Span<const NamedArray> arrays) {
  std::vector<absl::string_view> names = state_names_;
  std::erase_if(names, [&](absl::string_view name) {
    return IsHistory(name) && std::none_of(arrays.begin(), arrays.end(), [&](const auto& array) {
             return SuffixOf(array.name) == name;
           });
  });
  PENSTOCK_RETURN_IF_ERROR(CheckArrays(layer, names, arrays));
  for (size_t slot = 0; slot < state_names_.size(); ++slot) {
    if (std::find(names.begin(), names.end(), state_names_[slot]) == names.end()) continue;
    CopyIn(layer, state_names_[slot], arrays,
           [&](size_t p) { return StatePlace(layer, p, state_arrays_[slot]); });
  }
  history_.Forget();
  average_.Forget();
  return absl::OkStatus();
}

int64_t Stage::version() const { return versions_.current().number; }
void Stage::SetVersion(int64_t version, int64_t steps) {
  versions_.Renumber(version);
  steps_ = steps;
  history_.Forget();
  if (options_.rounding == Rounding::kStochastic) RefreshMirror();
}

std::vector<std::string> Stage::LayerDigests() {
  std::vector<std::string> digests;
  digests.reserve(layer_count());
  for (int layer = 0; layer < layer_count(); ++layer) {
    digests.push_back(ParametersDigest(LayerWeights(layer)));
  }
  return digests;
}

Stage::MemoryStats Stage::memory() const {
  MemoryStats stats;
  stats.version_bytes = versions_.version_bytes();
  stats.frozen_bytes = frozen_.f32.size_bytes() + frozen_.bf16.size_bytes();
  stats.versions_allocated = versions_.allocated();
  stats.weight_bytes = versions_.device_bytes();
  stats.host_stash_bytes = versions_.host_bytes();
  stats.gradient_bytes = gradients_.size_bytes();
  for (const Buffer& state : optimizer_state_) {
    stats.optimizer_bytes += state.size_bytes();
  }
  stats.optimizer_bytes += history_.state_bytes() + average_.state_bytes();
  stats.predicted_bytes = history_.workspace_bytes() + average_.mirror_bytes();
  return stats;
}

int64_t Stage::DeviceVersions(int64_t versions) const {
  const bool own_memory = &backend_.pool() != &backend_.host_pool();
  return DeviceVersionsOf(options_.stash, own_memory, versions);
}

}  // namespace penstock
