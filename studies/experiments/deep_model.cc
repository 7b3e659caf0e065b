#include "studies/experiments/deep_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/profile/model_profile.h"
#include "planner/graph/partition.h"

namespace penstock {
namespace {

// Layers [first, first + blocks * layers) repeat.
struct RepeatedLayers {
  int first = 0;
  int layers = 0;  // of a block
  int blocks = 0;

  int end() const { return first + layers * blocks; }
};

RepeatedLayers FindBlocks(const v1::ModelProfile& profile) {
  RepeatedLayers best;
  const int size = profile.layers_size();
  for (int period = 1; 2 * period <= size; ++period) {
    for (int first = 0; first + 2 * period <= size; ++first) {
      int end = first + period;
      while (end < size && profile.layers(end).shape() == profile.layers(end - period).shape()) {
        ++end;
      }
      const RepeatedLayers found = {first, period, (end - first) / period};
      if (found.blocks < 2) continue;
      if (found.layers * found.blocks > best.layers * best.blocks) best = found;
    }
  }
  return best;
}

// Returns by layer the bytes of a sample that cross the cut behind it.
std::vector<double> CutBytes(const v1::ModelProfile& profile) {
  std::map<std::string, int> places;
  for (int i = 0; i < profile.layers_size(); ++i) places[profile.layers(i).layer()] = i;
  std::vector<double> bytes(profile.layers_size());
  for (int i = 0; i < profile.layers_size(); ++i) {
    for (const v1::ProfiledValue& value : profile.layers(i).values()) {
      int last = i;
      for (const std::string& reader : value.readers()) {
        last = std::max(last, places.at(reader));
      }
      for (int cut = i; cut < last; ++cut) bytes[cut] += static_cast<double>(value.sample_bytes());
    }
  }
  return bytes;
}

absl::Status CheckEqualCuts(const v1::ModelProfile& profile, const RepeatedLayers& run,
                            const std::vector<double>& bytes) {
  for (int layer = run.first; layer + 1 < run.end(); ++layer) {
    const int same = run.first + (layer - run.first) % run.layers;
    if (bytes[layer] == bytes[same]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the model cannot be made deeper: ", bytes[layer], " bytes of a sample cross behind layer ",
        profile.layers(layer).layer(), ", but ", bytes[same], " behind ",
        profile.layers(same).layer(), " of an equal block; expected as many"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeepModel> DeepenModel(const v1::ModelProfile& profile, int64_t samples, int blocks,
                                      int stages, double speed) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::DeviceTimes times, DeviceTimesOf(profile, samples));
  const RepeatedLayers run = FindBlocks(profile);
  if (run.blocks == 0) {
    return absl::InvalidArgumentError(
        "the model cannot be made deeper: no layers of its profile repeat; expected two or more "
        "equal blocks beside each other, as a GPT has");
  }
  const std::vector<double> cut_bytes = CutBytes(profile);
  PENSTOCK_RETURN_IF_ERROR(CheckEqualCuts(profile, run, cut_bytes));
  DeepModel model = {.block_layers = run.layers, .measured_blocks = run.blocks};
  const auto layer_of = [&](int measured, int cut) {
    const v1::PassTimes& passes = times.layers(measured).times();
    return DeepLayer{.costs = {.forward_s = passes.forward_ms() * 1e-3 / speed,
                               .backward_input_s = passes.backward_input_ms() * 1e-3 / speed,
                               .backward_weight_s = passes.backward_weight_ms() * 1e-3 / speed,
                               .update_s = passes.update_ms() * 1e-3 / speed},
                     .output_bytes = cut_bytes[cut] * static_cast<double>(samples)};
  };
  double block_s = 0;
  double others_s = 0;
  double longest_s = 0;
  for (int i = 0; i < profile.layers_size(); ++i) {
    const double pass_s = layer_of(i, i).pass_s();
    longest_s = std::max(longest_s, pass_s);
    if (i < run.first || i >= run.end()) others_s += pass_s;
    if (i >= run.first && i < run.first + run.layers) block_s += pass_s;
  }
  model.blocks = blocks;
  if (blocks == 0) {
    model.blocks = std::max(run.blocks, (stages + run.layers - 1) / run.layers);
    if (block_s > 0) {
      const double wanted = std::ceil((stages * longest_s - others_s) / block_s * (1 - 1e-12));
      model.blocks = std::max(model.blocks, static_cast<int>(std::min(wanted, 1e6)));
    }
  }
  const auto add = [&](int measured, int cut) {
    model.layers.push_back(layer_of(measured, cut));
    model.parameter_bytes +=
        static_cast<double>(ShapeOf(profile, profile.layers(measured)).gradient_bytes());
  };
  for (int i = 0; i < run.first; ++i) add(i, i);
  for (int block = 0; block < model.blocks; ++block) {
    // Only behind the last block may something else cross than behind the others.
    const int measured = block + 1 < model.blocks ? run.first : run.end() - run.layers;
    for (int layer = 0; layer < run.layers; ++layer) add(measured + layer, measured + layer);
  }
  for (int i = run.end(); i < profile.layers_size(); ++i) add(i, i);
  return model;
}

absl::StatusOr<DeepStages> CutDeepModel(const DeepModel& model, int stages) {
  std::vector<double> costs;
  costs.reserve(model.layers.size());
  for (const DeepLayer& layer : model.layers) costs.push_back(layer.pass_s());
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int> firsts, PartitionChain(costs, stages));
  firsts.push_back(static_cast<int>(model.layers.size()));
  DeepStages cut;
  for (int stage = 0; stage < stages; ++stage) {
    StageCosts sum = {.forward_s = 0, .backward_input_s = 0, .backward_weight_s = 0};
    for (int layer = firsts[stage]; layer < firsts[stage + 1]; ++layer) {
      const StageCosts& of_layer = model.layers[layer].costs;
      sum.forward_s += of_layer.forward_s;
      sum.backward_input_s += of_layer.backward_input_s;
      sum.backward_weight_s += of_layer.backward_weight_s;
      sum.update_s += of_layer.update_s;
    }
    cut.costs.push_back(sum);
    cut.output_bytes.push_back(stage + 1 < stages ? model.layers[firsts[stage + 1] - 1].output_bytes
                                                  : 0.0);
  }
  return cut;
}

}  // namespace penstock
