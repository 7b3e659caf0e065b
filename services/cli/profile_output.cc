#include "services/cli/profile_output.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// Links beyond this many get one line together.
constexpr int kLinkRowsMax = 56;  // of 8 workers

constexpr double kBytesPerMegabyte = 1e6;

int64_t LayersOfShape(const v1::ModelProfile& profile, const std::string& shape) {
  return std::count_if(profile.layers().begin(), profile.layers().end(),
                       [&](const v1::ProfiledLayer& layer) { return layer.shape() == shape; });
}

// A shape of many ops is too long for a table: the first layer that has it then stands for it.
std::string ShapeText(const v1::ModelProfile& profile, const v1::ShapeProfile& shape) {
  constexpr size_t kCharactersMax = 72;
  if (shape.shape().size() <= kCharactersMax) return shape.shape();
  const auto first =
      std::find_if(profile.layers().begin(), profile.layers().end(),
                   [&](const v1::ProfiledLayer& layer) { return layer.shape() == shape.shape(); });
  return absl::StrCat("as ", first->layer(), ", ", shape.sizes(0).nodes_size(), " ops");
}

std::string TimeText(const v1::MeasuredTime& time) {
  return absl::StrCat(FormatFixed(time.ms(), 3), " ±", FormatFixed(time.spread_ms(), 3));
}

std::string DeviceText(const v1::ClusterProfile& profile, const v1::DeviceProfile& device) {
  std::vector<std::string> workers;
  for (const v1::ProfiledWorker& worker : profile.workers()) {
    if (worker.device() == device.device()) workers.push_back(worker.worker());
  }
  return absl::StrCat(absl::StrJoin(workers, ", "), ": ", device.device(), ", timed on ",
                      device.timed_on(), device.cached() ? " for an earlier profile" : "", "\n",
                      ProfileText(device.model()));
}

std::string WorkersText(const v1::ClusterProfile& profile) {
  Table table({{"WORKER"},
               {"HOST"},
               {"MEMORY", Table::Align::kRight},
               {"OFFLOAD MB/S", Table::Align::kRight},
               {"DEVICE"}});
  for (const v1::ProfiledWorker& worker : profile.workers()) {
    const double rate = worker.offload_bytes_per_second();
    table.AddRow({worker.worker(), worker.host(), FormatBytes(worker.memory_bytes()),
                  rate > 0 ? FormatFixed(rate / kBytesPerMegabyte, 1) : "-", worker.device()});
  }
  return table.Render();
}

std::string LinksTable(const v1::ClusterProfile& profile) {
  Table table(
      {{"FROM"}, {"TO"}, {"LATENCY US", Table::Align::kRight}, {"MB/S", Table::Align::kRight}});
  for (const v1::ProfiledLink& link : profile.links()) {
    table.AddRow({link.from(), link.to(), FormatFixed(link.latency_us(), 1),
                  FormatFixed(link.bytes_per_second() / kBytesPerMegabyte, 1)});
  }
  return table.Render();
}

std::string LinksText(const v1::ClusterProfile& profile) {
  if (profile.links().empty()) return "";
  if (profile.links_size() <= kLinkRowsMax) return absl::StrCat("\n", LinksTable(profile));
  const auto [least, most] = std::minmax_element(
      profile.links().begin(), profile.links().end(),
      [](const auto& a, const auto& b) { return a.latency_us() < b.latency_us(); });
  const auto [slowest, fastest] = std::minmax_element(
      profile.links().begin(), profile.links().end(),
      [](const auto& a, const auto& b) { return a.bytes_per_second() < b.bytes_per_second(); });
  return absl::StrCat("\n", profile.links_size(), " links with a latency of ",
                      FormatFixed(least->latency_us(), 1), " to ",
                      FormatFixed(most->latency_us(), 1), " us and ",
                      FormatFixed(slowest->bytes_per_second() / kBytesPerMegabyte, 1), " to ",
                      FormatFixed(fastest->bytes_per_second() / kBytesPerMegabyte, 1),
                      " MB/s; --json and -o have each\n");
}

nlohmann::ordered_json TimeJson(const v1::MeasuredTime& time) {
  return {{"ms", time.ms()}, {"spread_ms", time.spread_ms()}};
}

// The bytes of all nodes of a layer.
v1::NodeMemory MemoryOf(const v1::SizeProfile& size) {
  v1::NodeMemory sum;
  for (const v1::NodeMemory& node : size.nodes()) {
    sum.set_stash_bytes(sum.stash_bytes() + node.stash_bytes());
    sum.set_kept_bytes(sum.kept_bytes() + node.kept_bytes());
    sum.set_weight_stash_bytes(sum.weight_stash_bytes() + node.weight_stash_bytes());
  }
  return sum;
}

nlohmann::ordered_json ShapeJson(const v1::ShapeProfile& shape) {
  nlohmann::ordered_json sizes = nlohmann::ordered_json::array();
  for (const v1::SizeProfile& size : shape.sizes()) {
    const v1::NodeMemory memory = MemoryOf(size);
    sizes.push_back({{"samples", size.samples()},
                     {"forward", TimeJson(size.forward())},
                     {"backward_input", TimeJson(size.backward_input())},
                     {"backward_weight", TimeJson(size.backward_weight())},
                     {"stash_bytes", memory.stash_bytes()},
                     {"kept_bytes", memory.kept_bytes()},
                     {"weight_stash_bytes", memory.weight_stash_bytes()},
                     {"pass_scratch_bytes", size.pass_scratch_bytes()},
                     {"library_scratch_bytes", size.library_scratch_bytes()}});
  }
  return {{"shape", shape.shape()},
          {"weight_bytes", shape.weight_bytes()},
          {"gradient_bytes", shape.gradient_bytes()},
          {"optimizer_bytes", shape.optimizer_bytes()},
          {"update", TimeJson(shape.update())},
          {"sizes", sizes}};
}

Json DeviceJson(const v1::DeviceProfile& device) {
  return {{"device", device.device()},
          {"timed_on", device.timed_on()},
          {"cached", device.cached()},
          {"model", ProfileJson(device.model())}};
}

Json WorkerJson(const v1::ProfiledWorker& worker) {
  return {{"worker", worker.worker()},
          {"device", worker.device()},
          {"memory_bytes", worker.memory_bytes()},
          {"offload_bytes_per_second", worker.offload_bytes_per_second()},
          {"host", worker.host()}};
}

Json LinkJson(const v1::ProfiledLink& link) {
  return {{"from", link.from()},
          {"to", link.to()},
          {"latency_us", link.latency_us()},
          {"bytes_per_second", link.bytes_per_second()}};
}

}  // namespace

std::string ProfileText(const v1::ModelProfile& profile) {
  Table table({{"LAYERS", Table::Align::kRight},
               {"SHAPE"},
               {"SAMPLES", Table::Align::kRight},
               {"FORWARD MS", Table::Align::kRight},
               {"INPUT MS", Table::Align::kRight},
               {"WEIGHT MS", Table::Align::kRight},
               {"UPDATE MS", Table::Align::kRight},
               {"WEIGHTS", Table::Align::kRight},
               {"STASH", Table::Align::kRight}});
  for (const v1::ShapeProfile& shape : profile.shapes()) {
    bool first = true;
    for (const v1::SizeProfile& size : shape.sizes()) {
      table.AddRow({first ? absl::StrCat(LayersOfShape(profile, shape.shape())) : "",
                    first ? ShapeText(profile, shape) : "", absl::StrCat(size.samples()),
                    TimeText(size.forward()), TimeText(size.backward_input()),
                    TimeText(size.backward_weight()), first ? TimeText(shape.update()) : "",
                    first ? FormatBytes(shape.weight_bytes()) : "",
                    FormatBytes(MemoryOf(size).stash_bytes() + MemoryOf(size).kept_bytes())});
      first = false;
    }
  }
  return absl::StrCat(profile.device(), ", ", profile.precision(), ", ", profile.optimizer(), ", ",
                      profile.time_steps(), " time steps; the time of one microbatch\n\n",
                      table.Render());
}

nlohmann::ordered_json ProfileJson(const v1::ModelProfile& profile) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const v1::ProfiledLayer& layer : profile.layers()) {
    Json values = Json::array();
    for (const v1::ProfiledValue& value : layer.values()) {
      const std::vector<std::string> readers(value.readers().begin(), value.readers().end());
      values.push_back({{"sample_bytes", value.sample_bytes()}, {"readers", readers}});
    }
    layers.push_back({{"layer", layer.layer()}, {"shape", layer.shape()}, {"values", values}});
  }
  nlohmann::ordered_json shapes = nlohmann::ordered_json::array();
  for (const v1::ShapeProfile& shape : profile.shapes()) shapes.push_back(ShapeJson(shape));
  return {{"device", profile.device()},
          {"precision", profile.precision()},
          {"optimizer", profile.optimizer()},
          {"time_steps", profile.time_steps()},
          {"layers", layers},
          {"bundles",
           {{"pack_ms_per_megabyte", profile.bundles().pack_ms_per_megabyte()},
            {"unpack_ms_per_megabyte", profile.bundles().unpack_ms_per_megabyte()}}},
          {"shapes", shapes}};
}

std::string ProfileText(const v1::ClusterProfile& profile) {
  std::string text;
  for (const v1::DeviceProfile& device : profile.devices()) {
    absl::StrAppend(&text, DeviceText(profile, device), "\n");
  }
  return absl::StrCat(text, WorkersText(profile), LinksText(profile));
}

nlohmann::ordered_json ProfileJson(const v1::ClusterProfile& profile) {
  Json devices = Json::array(), workers = Json::array(), links = Json::array();
  for (const v1::DeviceProfile& device : profile.devices()) devices.push_back(DeviceJson(device));
  for (const v1::ProfiledWorker& worker : profile.workers()) workers.push_back(WorkerJson(worker));
  for (const v1::ProfiledLink& link : profile.links()) links.push_back(LinkJson(link));
  return {{"devices", devices}, {"workers", workers}, {"links", links}};
}

}  // namespace penstock
