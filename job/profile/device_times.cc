#include "job/profile/device_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/sha256.h"
#include "base/status.h"
#include "job/keys/suggest.h"
#include "job/yaml/yaml_message.h"
#include "job/yaml/yaml_writer.h"

namespace penstock {
namespace {

constexpr double kGigabitsMax = 1e6;
constexpr double kStashMegabytesMax = 1e9;

// "mlp" of "h.0.mlp".
std::string LastPart(const std::string& layer) {
  const size_t dot = layer.rfind('.');
  return dot == std::string::npos ? layer : layer.substr(dot + 1);
}

absl::Status CheckTimes(const std::string& key, const v1::PassTimes& times) {
  PENSTOCK_RETURN_IF_ERROR(CheckPassMs(key + ".forward_ms", times.forward_ms()));
  PENSTOCK_RETURN_IF_ERROR(CheckPassMs(key + ".backward_input_ms", times.backward_input_ms()));
  PENSTOCK_RETURN_IF_ERROR(CheckPassMs(key + ".backward_weight_ms", times.backward_weight_ms()));
  return CheckPassMs(key + ".update_ms", times.update_ms());
}

bool HasTime(const v1::PassTimes& times) {
  return times.forward_ms() + times.backward_input_ms() + times.backward_weight_ms() > 0.0;
}

absl::Status CheckLayers(const v1::DeviceTimes& times) {
  std::set<std::string> names;
  bool any = false;
  for (int i = 0; i < times.layers_size(); ++i) {
    const v1::LayerTimes& layer = times.layers(i);
    const std::string key = absl::StrCat("layers[", i, "]");
    if (layer.layer().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ".layer: is missing; expected a layer's name, such as mlp or h.0.mlp"));
    }
    if (!names.insert(layer.layer()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ".layer: ", layer.layer(), " is named twice"));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckTimes(key + ".times", layer.times()));
    if (!(layer.stash_megabytes() >= 0.0 && layer.stash_megabytes() <= kStashMegabytesMax)) {
      return absl::InvalidArgumentError(absl::StrCat(key, ".stash_megabytes: is ",
                                                     layer.stash_megabytes(), "; expected 0 to ",
                                                     kStashMegabytesMax));
    }
    any = any || HasTime(layer.times());
  }
  return any ? absl::OkStatus()
             : absl::InvalidArgumentError("layers: no pass takes any time; expected some above 0");
}

absl::Status CheckSpeeds(const v1::DeviceTimes& times) {
  for (int i = 0; i < times.speeds_size(); ++i) {
    const double speed = times.speeds(i);
    if (speed >= 1.0 / kSpeedMax && speed <= kSpeedMax) continue;
    return absl::InvalidArgumentError(absl::StrCat("speeds: that of worker ", i, " is ", speed,
                                                   "; expected ", 1.0 / kSpeedMax, " to ",
                                                   kSpeedMax));
  }
  return absl::OkStatus();
}

absl::Status CheckGigabits(const std::string& key, double gigabits) {
  if (gigabits >= 1.0 / kGigabitsMax && gigabits <= kGigabitsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, ": is ", gigabits, "; expected ",
                                                 1.0 / kGigabitsMax, " to ", kGigabitsMax,
                                                 ", or none for no limit"));
}

absl::Status CheckLink(const std::string& key, const v1::LinkTimes& link) {
  const auto& workers = link.workers();
  const bool pair =
      workers.size() == 2 && workers[0] >= 0 && workers[1] >= 0 && workers[0] != workers[1];
  if (!workers.empty() && !pair) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ".workers: are ", absl::StrJoin(workers, ", "),
                     "; expected the numbers of two workers, or none for all other pairs"));
  }
  if (link.has_gigabits_per_second()) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckGigabits(key + ".gigabits_per_second", link.gigabits_per_second()));
  }
  return CheckPassMs(key + ".latency_ms", link.latency_ms());
}

absl::Status CheckLinks(const v1::DeviceTimes& times) {
  std::set<std::pair<int32_t, int32_t>> seen;
  for (int i = 0; i < times.links_size(); ++i) {
    const std::string key = absl::StrCat("links[", i, "]");
    PENSTOCK_RETURN_IF_ERROR(CheckLink(key, times.links(i)));
    const auto& workers = times.links(i).workers();
    const std::pair<int32_t, int32_t> others(-1, -1);
    const auto pair = workers.empty() ? others : std::minmax({workers[0], workers[1]});
    if (seen.insert(pair).second) continue;
    return absl::InvalidArgumentError(
        workers.empty() ? absl::StrCat(key,
                                       ": is a second entry without workers; one is for all "
                                       "pairs that have none of their own")
                        : absl::StrCat(key, ".workers: ", workers[0], " and ", workers[1],
                                       " are joined twice"));
  }
  return absl::OkStatus();
}

void Add(const v1::PassTimes& times, double share, StageCosts& costs) {
  costs.forward_s += share * times.forward_ms() * 1e-3;
  costs.backward_input_s += share * times.backward_input_ms() * 1e-3;
  costs.backward_weight_s += share * times.backward_weight_ms() * 1e-3;
  costs.update_s += share * times.update_ms() * 1e-3;
}

absl::Status CheckStage(const StageCosts& costs, size_t stage) {
  for (const double seconds :
       {costs.forward_s, costs.backward_input_s, costs.backward_weight_s, costs.update_s}) {
    PENSTOCK_RETURN_IF_ERROR(CheckPassMs(absl::StrCat("stage ", stage), seconds * 1e3));
  }
  return absl::OkStatus();
}

absl::Status CheckEntriesAreOfLayers(const v1::DeviceTimes& times, const ModelGraph& model) {
  std::set<std::string> names;
  for (const LayerSpec& layer : model.layers) names.insert({layer.name, LastPart(layer.name)});
  for (const v1::LayerTimes& entry : times.layers()) {
    if (names.count(entry.layer()) > 0) continue;
    const std::vector<std::string> known(names.begin(), names.end());
    const std::string nearest = NearestName(entry.layer(), known);
    return absl::InvalidArgumentError(
        absl::StrCat("device times: the model has no layer ", entry.layer(),
                     nearest.empty() ? absl::StrCat("; expected ", absl::StrJoin(known, ", "))
                                     : absl::StrCat("; did you mean ", nearest, "?")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPassMs(const std::string& key, double ms) {
  if (std::isfinite(ms) && ms >= 0.0 && ms <= kPassMsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": is ", ms, " ms; expected 0 to ", kPassMsMax));
}

absl::Status CheckDeviceTimes(const v1::DeviceTimes& times) {
  if (!(times.jitter() >= 0.0 && times.jitter() < 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("jitter: is ", times.jitter(), "; expected at least 0 and below 1"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckSpeeds(times));
  PENSTOCK_RETURN_IF_ERROR(CheckLinks(times));
  if (times.has_offload_gigabits_per_second()) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckGigabits("offload_gigabits_per_second", times.offload_gigabits_per_second()));
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckPassMs("bundles.pack_ms_per_megabyte", times.bundles().pack_ms_per_megabyte()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckPassMs("bundles.unpack_ms_per_megabyte", times.bundles().unpack_ms_per_megabyte()));
  if (times.has_model() == (times.layers_size() > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(times.has_model() ? "has both model and layers" : "has no times",
                     "; expected either `model` (split evenly over the stages) or `layers`"));
  }
  if (!times.has_model()) return CheckLayers(times);
  PENSTOCK_RETURN_IF_ERROR(CheckTimes("model", times.model()));
  return HasTime(times.model())
             ? absl::OkStatus()
             : absl::InvalidArgumentError("model: no pass takes any time; expected some above 0");
}

absl::StatusOr<v1::DeviceTimes> ParseDeviceTimes(absl::string_view text,
                                                 const std::string& file_name) {
  v1::DeviceTimes times;
  YamlPositions positions;
  PENSTOCK_RETURN_IF_ERROR(ReadYamlMessage(text, file_name, times, positions));
  if (const absl::Status valid = CheckDeviceTimes(times); !valid.ok()) {
    return WithPlace(valid, file_name, positions);
  }
  if (times.device().empty()) times.set_device("emulated");
  return times;
}

absl::StatusOr<v1::DeviceTimes> ReadDeviceTimes(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path));
  return ParseDeviceTimes(text, path);
}

std::string NameOfTimes(const v1::DeviceTimes& times) {
  constexpr size_t kDigits = 8;
  return absl::StrCat(times.device(), ", times ",
                      Sha256Hex(WriteYamlMessage(times, "")).substr(0, kDigits));
}

absl::StatusOr<std::vector<StageCosts>> StageCostsOf(const v1::DeviceTimes& times,
                                                     const ModelGraph& model,
                                                     absl::Span<const LayerRange> layers) {
  std::map<std::string, const v1::LayerTimes*> by_name;
  for (const v1::LayerTimes& layer : times.layers()) by_name[layer.layer()] = &layer;
  PENSTOCK_RETURN_IF_ERROR(CheckEntriesAreOfLayers(times, model));

  constexpr StageCosts kNothing = {0.0, 0.0, 0.0, 0.0};
  std::vector<StageCosts> costs(layers.size(), kNothing);
  // The first stages have the whole model; others are of replicas, or of the way back.
  const auto last = std::find_if(layers.begin(), layers.end(), [&](const LayerRange& stage) {
    return stage.end() == model.size();
  });
  const auto end = last == layers.end() ? last : last + 1;
  double stages_of_model = 1.0;  // replicas of a stage stand beside each other
  for (auto stage = layers.begin(); stage != end && stage + 1 != end; ++stage) {
    if (!(stage[0] == stage[1])) ++stages_of_model;
  }
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    if (times.has_model()) {
      Add(times.model(), 1.0 / stages_of_model, costs[stage]);
      continue;
    }
    for (int i = layers[stage].first; i < layers[stage].end(); ++i) {
      const std::string& name = model.layers[i].name;
      auto found = by_name.find(name);
      if (found == by_name.end()) found = by_name.find(LastPart(name));
      if (found == by_name.end()) {
        return absl::InvalidArgumentError(absl::StrCat("device times: layer ", name,
                                                       " has none; expected an entry ", name,
                                                       " or ", LastPart(name)));
      }
      Add(found->second->times(), 1.0, costs[stage]);
      costs[stage].stash_bytes += found->second->stash_megabytes() * 1e6;
    }
    PENSTOCK_RETURN_IF_ERROR(Annotate(CheckStage(costs[stage], stage), "device times"));
  }
  return costs;
}

}  // namespace penstock
