#include "job/profile/model_profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/profile/device_times.h"
#include "job/yaml/yaml_message.h"
#include "job/yaml/yaml_writer.h"
#include "model/describe.h"

namespace penstock {
namespace {

constexpr int64_t kBytesMax = int64_t{1} << 50;

absl::Status CheckTime(const std::string& key, const v1::MeasuredTime& time) {
  PENSTOCK_RETURN_IF_ERROR(CheckPassMs(key + ".ms", time.ms()));
  return CheckPassMs(key + ".spread_ms", time.spread_ms());
}

absl::Status CheckBytes(const std::string& key, int64_t bytes) {
  if (bytes >= 0 && bytes <= kBytesMax) return absl::OkStatus();
  return InvalidKey(key, absl::StrCat("is ", bytes, " bytes; expected 0 to ", kBytesMax));
}

absl::Status CheckSize(const std::string& key, const v1::SizeProfile& size) {
  PENSTOCK_RETURN_IF_ERROR(CheckTime(key + ".forward", size.forward()));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(key + ".backward_input", size.backward_input()));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(key + ".backward_weight", size.backward_weight()));
  PENSTOCK_RETURN_IF_ERROR(CheckBytes(key + ".pass_scratch_bytes", size.pass_scratch_bytes()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckBytes(key + ".library_scratch_bytes", size.library_scratch_bytes()));
  for (int i = 0; i < size.nodes_size(); ++i) {
    const v1::NodeMemory& node = size.nodes(i);
    const std::string of_node = absl::StrCat(key, ".nodes[", i, "]");
    PENSTOCK_RETURN_IF_ERROR(CheckBytes(of_node + ".stash_bytes", node.stash_bytes()));
    PENSTOCK_RETURN_IF_ERROR(CheckBytes(of_node + ".kept_bytes", node.kept_bytes()));
    PENSTOCK_RETURN_IF_ERROR(
        CheckBytes(of_node + ".weight_stash_bytes", node.weight_stash_bytes()));
  }
  return absl::OkStatus();
}

std::vector<int64_t> SamplesOf(const v1::ShapeProfile& shape) {
  std::vector<int64_t> samples;
  for (const v1::SizeProfile& size : shape.sizes()) samples.push_back(size.samples());
  return samples;
}

absl::Status CheckShape(const std::string& key, const v1::ShapeProfile& shape,
                        const std::vector<int64_t>& sizes_expected) {
  PENSTOCK_RETURN_IF_ERROR(CheckBytes(key + ".weight_bytes", shape.weight_bytes()));
  PENSTOCK_RETURN_IF_ERROR(CheckBytes(key + ".gradient_bytes", shape.gradient_bytes()));
  PENSTOCK_RETURN_IF_ERROR(CheckBytes(key + ".optimizer_bytes", shape.optimizer_bytes()));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(key + ".update", shape.update()));
  int64_t least = 1;
  for (int i = 0; i < shape.sizes_size(); ++i) {
    const std::string of_size = absl::StrCat(key, ".sizes[", i, "]");
    const int64_t samples = shape.sizes(i).samples();
    if (samples < least) {
      return InvalidKey(of_size + ".samples", absl::StrCat("is ", samples, "; expected ", least,
                                                           " or more, since sizes ascend"));
    }
    least = samples + 1;
    PENSTOCK_RETURN_IF_ERROR(CheckSize(of_size, shape.sizes(i)));
    if (shape.sizes(i).nodes_size() != shape.sizes(0).nodes_size()) {
      return InvalidKey(of_size + ".nodes",
                        absl::StrCat("has ", shape.sizes(i).nodes_size(), "; expected ",
                                     shape.sizes(0).nodes_size(), ", as the first size has"));
    }
  }
  if (SamplesOf(shape) != sizes_expected || sizes_expected.empty()) {
    return InvalidKey(key + ".sizes",
                      absl::StrCat("are of ", absl::StrJoin(SamplesOf(shape), ", "),
                                   " samples; expected those of all other shapes, one at least (",
                                   absl::StrJoin(sizes_expected, ", "), ")"));
  }
  return absl::OkStatus();
}

// Every value is read by layers behind the one that makes it.
absl::Status CheckValues(const v1::ModelProfile& profile) {
  std::set<std::string> behind;
  for (int i = profile.layers_size(); i-- > 0;) {
    const v1::ProfiledLayer& layer = profile.layers(i);
    for (int v = 0; v < layer.values_size(); ++v) {
      const v1::ProfiledValue& value = layer.values(v);
      const std::string key = absl::StrCat("layers[", i, "].values[", v, "]");
      PENSTOCK_RETURN_IF_ERROR(CheckBytes(key + ".sample_bytes", value.sample_bytes()));
      for (const std::string& reader : value.readers()) {
        if (behind.count(reader) > 0) continue;
        return InvalidKey(
            key + ".readers",
            absl::StrCat("has ", reader, ", which is no layer behind ", layer.layer()));
      }
    }
    behind.insert(layer.layer());
  }
  return absl::OkStatus();
}

// Where a number of samples lies among the measured sizes: `share` of the way from one to the other.
struct PlaceOfSize {
  int below = 0;
  int above = 0;
  double share = 0.0;

  double Between(double from, double to) const { return from + (to - from) * share; }
  int64_t BytesBetween(int64_t from, int64_t to) const {
    return std::llround(std::ceil(Between(static_cast<double>(from), static_cast<double>(to))));
  }
};

absl::StatusOr<PlaceOfSize> FindSize(const v1::ModelProfile& profile, int64_t samples) {
  const std::vector<int64_t> sizes = SamplesOf(profile.shapes(0));
  if (samples < sizes.front() || samples > sizes.back()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the profile has microbatches of ", absl::StrJoin(sizes, ", "),
        " samples, and nothing is known of ", samples, "; make one with --samples ", samples));
  }
  const auto above = std::lower_bound(sizes.begin(), sizes.end(), samples);
  const auto below = *above == samples ? above : above - 1;
  PlaceOfSize place = {.below = static_cast<int>(below - sizes.begin()),
                       .above = static_cast<int>(above - sizes.begin())};
  if (above != below) {
    place.share = static_cast<double>(samples - *below) / static_cast<double>(*above - *below);
  }
  return place;
}

v1::PassTimes PassTimesOf(const v1::ShapeProfile& shape, const PlaceOfSize& place) {
  const v1::SizeProfile& from = shape.sizes(place.below);
  const v1::SizeProfile& to = shape.sizes(place.above);
  v1::PassTimes times;
  times.set_forward_ms(place.Between(from.forward().ms(), to.forward().ms()));
  times.set_backward_input_ms(place.Between(from.backward_input().ms(), to.backward_input().ms()));
  times.set_backward_weight_ms(
      place.Between(from.backward_weight().ms(), to.backward_weight().ms()));
  times.set_update_ms(shape.update().ms());
  return times;
}

// By layer of the model. REQUIRES: CheckProfileFits is OK.
std::vector<const v1::ShapeProfile*> ShapesOf(const v1::ModelProfile& profile,
                                              const ModelGraph& model) {
  std::map<std::string, const v1::ProfiledLayer*> of_name;
  for (const v1::ProfiledLayer& layer : profile.layers()) of_name[layer.layer()] = &layer;
  std::vector<const v1::ShapeProfile*> shapes;
  for (const LayerSpec& layer : model.layers) {
    shapes.push_back(&ShapeOf(profile, *of_name.at(layer.name)));
  }
  return shapes;
}

void AddTapeNeeds(const v1::ShapeProfile& shape, const PlaceOfSize& place,
                  std::vector<TapeNeeds>& needs) {
  for (int i = 0; i < shape.sizes(place.above).nodes_size(); ++i) {
    const v1::NodeMemory& from = shape.sizes(place.below).nodes(i);
    const v1::NodeMemory& to = shape.sizes(place.above).nodes(i);
    needs.push_back({.stash_bytes = place.BytesBetween(from.stash_bytes(), to.stash_bytes()),
                     .kept_bytes = place.BytesBetween(from.kept_bytes(), to.kept_bytes()),
                     .weight_stash_bytes =
                         place.BytesBetween(from.weight_stash_bytes(), to.weight_stash_bytes()),
                     .inputs_for_input = to.inputs_for_input(),
                     .inputs_for_weight = to.inputs_for_weight(),
                     .output_for_input = to.output_for_input(),
                     .grad_output_for_weight = to.grad_output_for_weight(),
                     .passes_input = to.passes_input(),
                     .passes_gradient = to.passes_gradient()});
  }
}

}  // namespace

absl::Status CheckModelProfile(const v1::ModelProfile& profile) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckPassMs("bundles.pack_ms_per_megabyte", profile.bundles().pack_ms_per_megabyte()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckPassMs("bundles.unpack_ms_per_megabyte", profile.bundles().unpack_ms_per_megabyte()));
  if (profile.shapes().empty())
    return InvalidKey("shapes", "has none; expected one for each kind of layer");
  std::set<std::string> shapes;
  for (int i = 0; i < profile.shapes_size(); ++i) {
    const std::string key = absl::StrCat("shapes[", i, "]");
    if (!shapes.insert(profile.shapes(i).shape()).second) {
      return InvalidKey(key + ".shape", absl::StrCat(profile.shapes(i).shape(), " is there twice"));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckShape(key, profile.shapes(i), SamplesOf(profile.shapes(0))));
  }
  if (profile.layers().empty()) return InvalidKey("layers", "has none; expected those of a model");
  PENSTOCK_RETURN_IF_ERROR(CheckValues(profile));
  std::set<std::string> layers;
  for (int i = 0; i < profile.layers_size(); ++i) {
    const v1::ProfiledLayer& layer = profile.layers(i);
    const std::string key = absl::StrCat("layers[", i, "]");
    if (!layers.insert(layer.layer()).second) {
      return InvalidKey(key + ".layer", absl::StrCat(layer.layer(), " is there twice"));
    }
    if (shapes.count(layer.shape()) > 0) continue;
    return InvalidKey(key + ".shape", absl::StrCat(layer.shape(), " is none of `shapes`"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ModelProfile> ParseModelProfile(absl::string_view text,
                                                   const std::string& file_name) {
  v1::ModelProfile profile;
  YamlPositions positions;
  PENSTOCK_RETURN_IF_ERROR(ReadYamlMessage(text, file_name, profile, positions));
  if (const absl::Status valid = CheckModelProfile(profile); !valid.ok()) {
    return WithPlace(valid, file_name, positions);
  }
  return profile;
}

absl::StatusOr<v1::ModelProfile> ReadModelProfile(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path));
  return ParseModelProfile(text, path);
}

std::string PrintModelProfile(const v1::ModelProfile& profile) {
  return WriteYamlMessage(profile,
                          "Times and memory of each layer, measured by `penstock profile`.");
}

void SetLayers(const ModelGraph& model, Precision precision, v1::ModelProfile& profile) {
  profile.clear_layers();
  std::vector<v1::ProfiledValue*> values(model.values(), nullptr);  // that another layer reads
  for (const LayerSpec& layer : model.layers) {
    v1::ProfiledLayer& entry = *profile.add_layers();
    entry.set_layer(layer.name);
    entry.set_shape(DescribeWork(model, layer));
    for (int n = layer.first_node; n < layer.end_node(); ++n) {
      for (const int input : model.nodes[n].inputs) {
        if (model.is_port(input) || model.NodeOf(input) >= layer.first_node) continue;
        v1::ProfiledValue*& value = values[input];
        if (value == nullptr) {
          value = profile.mutable_layers(model.LayerOfNode(model.NodeOf(input)))->add_values();
          value->set_sample_bytes(model.TypeOf(input).elements() * SizeOf(CrossingType(precision)));
        }
        const bool is_new =
            value->readers().empty() || value->readers(value->readers_size() - 1) != layer.name;
        if (is_new) value->add_readers(layer.name);
      }
    }
  }
}

absl::Status CheckProfilePrecision(const v1::ModelProfile& profile, Precision precision) {
  const absl::string_view wanted = PrecisionName(precision);
  if (profile.precision() == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the profile is in ", profile.precision(),
                                                 ", the job in ", wanted,
                                                 "; make one of this job"));
}

absl::Status CheckProfileFits(const v1::ModelProfile& profile, const ModelGraph& model) {
  const int64_t targets = model.targets_per_sample();
  if (profile.time_steps() != targets) {
    return absl::InvalidArgumentError(absl::StrCat("the profile is of ", profile.time_steps(),
                                                   " time steps, the model has ", targets));
  }
  std::map<std::string, const v1::ProfiledLayer*> of_name;
  for (const v1::ProfiledLayer& layer : profile.layers()) of_name[layer.layer()] = &layer;
  for (int i = 0; i < model.size(); ++i) {
    const LayerSpec& layer = model.layers[i];
    const auto found = of_name.find(layer.name);
    const std::string expected = DescribeWork(model, layer);
    const std::string got = found == of_name.end() ? "none" : found->second->shape();
    if (expected != got) {
      return absl::InvalidArgumentError(
          absl::StrCat("the profile is of another model: its layer ", layer.name, " is ", got,
                       ", that of the model ", expected, "; make one with `penstock profile`"));
    }
    const v1::ShapeProfile& shape = ShapeOf(profile, *found->second);
    const int nodes = shape.sizes().empty() ? 0 : shape.sizes(0).nodes_size();
    if (nodes != layer.node_count) {
      return absl::InvalidArgumentError(
          absl::StrCat("the profile tells the memory of ", nodes, " nodes of layer ", layer.name,
                       ", which has ", layer.node_count, "; make one with `penstock profile`"));
    }
    of_name.erase(found);
  }
  if (of_name.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the profile is of another model: it has a layer ",
                                                 of_name.begin()->first,
                                                 "; make one with `penstock profile`"));
}

v1::ModelProfile MeanTimes(absl::Span<const v1::ModelProfile> profiles) {
  v1::ModelProfile mean = profiles.front();
  // `time_in` finds a time of a profile.
  const auto average = [&](v1::MeasuredTime& time, auto&& time_in) {
    double ms = 0.0;
    double spread_ms = 0.0;
    for (const v1::ModelProfile& profile : profiles) {
      ms += time_in(profile).ms();
      spread_ms += time_in(profile).spread_ms();
    }
    time.set_ms(ms / static_cast<double>(profiles.size()));
    time.set_spread_ms(spread_ms / static_cast<double>(profiles.size()));
  };
  v1::BundleTimes& bundles = *mean.mutable_bundles();
  bundles.Clear();
  for (const v1::ModelProfile& profile : profiles) {
    const auto parts = static_cast<double>(profiles.size());
    bundles.set_pack_ms_per_megabyte(bundles.pack_ms_per_megabyte() +
                                     profile.bundles().pack_ms_per_megabyte() / parts);
    bundles.set_unpack_ms_per_megabyte(bundles.unpack_ms_per_megabyte() +
                                       profile.bundles().unpack_ms_per_megabyte() / parts);
  }
  for (int i = 0; i < mean.shapes_size(); ++i) {
    v1::ShapeProfile& shape = *mean.mutable_shapes(i);
    average(*shape.mutable_update(),
            [i](const v1::ModelProfile& profile) { return profile.shapes(i).update(); });
    for (int j = 0; j < shape.sizes_size(); ++j) {
      v1::SizeProfile& size = *shape.mutable_sizes(j);
      average(*size.mutable_forward(), [i, j](const v1::ModelProfile& profile) {
        return profile.shapes(i).sizes(j).forward();
      });
      average(*size.mutable_backward_input(), [i, j](const v1::ModelProfile& profile) {
        return profile.shapes(i).sizes(j).backward_input();
      });
      average(*size.mutable_backward_weight(), [i, j](const v1::ModelProfile& profile) {
        return profile.shapes(i).sizes(j).backward_weight();
      });
    }
  }
  return mean;
}

const v1::ShapeProfile& ShapeOf(const v1::ModelProfile& profile, const v1::ProfiledLayer& layer) {
  return *std::find_if(
      profile.shapes().begin(), profile.shapes().end(),
      [&](const v1::ShapeProfile& shape) { return shape.shape() == layer.shape(); });
}

absl::StatusOr<v1::DeviceTimes> DeviceTimesOf(const v1::ModelProfile& profile, int64_t samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const PlaceOfSize place, FindSize(profile, samples));
  v1::DeviceTimes times;
  times.set_device(profile.device());
  if (profile.has_bundles()) *times.mutable_bundles() = profile.bundles();
  for (const v1::ProfiledLayer& layer : profile.layers()) {
    v1::LayerTimes& entry = *times.add_layers();
    entry.set_layer(layer.layer());
    *entry.mutable_times() = PassTimesOf(ShapeOf(profile, layer), place);
  }
  return times;
}

absl::StatusOr<std::vector<TapeNeeds>> TapeNeedsOf(const v1::ModelProfile& profile,
                                                   const ModelGraph& model, int64_t samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const PlaceOfSize place, FindSize(profile, samples));
  std::vector<TapeNeeds> needs;
  for (const v1::ShapeProfile* shape : ShapesOf(profile, model)) AddTapeNeeds(*shape, place, needs);
  return needs;
}

absl::StatusOr<std::vector<ScratchBytes>> ScratchNeedsOf(const v1::ModelProfile& profile,
                                                         const ModelGraph& model, int64_t samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const PlaceOfSize place, FindSize(profile, samples));
  std::vector<ScratchBytes> needs;
  for (const v1::ShapeProfile* shape : ShapesOf(profile, model)) {
    const v1::SizeProfile& from = shape->sizes(place.below);
    const v1::SizeProfile& to = shape->sizes(place.above);
    needs.push_back(
        {.of_pass = place.BytesBetween(from.pass_scratch_bytes(), to.pass_scratch_bytes()),
         .of_library =
             place.BytesBetween(from.library_scratch_bytes(), to.library_scratch_bytes())});
  }
  return needs;
}

}  // namespace penstock
