#include "job/profile/cluster_profile.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "job/keys/check_fields.h"
#include "job/profile/model_profile.h"
#include "job/yaml/yaml_message.h"
#include "job/yaml/yaml_writer.h"

namespace penstock {
namespace {

constexpr int64_t kMemoryBytesMax = int64_t{1} << 50;

bool SameLayer(const v1::ProfiledLayer& a, const v1::ProfiledLayer& b) {
  return a.layer() == b.layer() && a.shape() == b.shape();
}

bool SameSamples(const v1::SizeProfile& a, const v1::SizeProfile& b) {
  return a.samples() == b.samples();
}

// Checks that both are of one model, trained in one way, with microbatches of the same sizes.
// REQUIRES: CheckModelProfile is OK for both.
absl::Status CheckAlike(const std::string& key, const v1::ModelProfile& model,
                        const v1::ModelProfile& first) {
  const auto differs = [&](absl::string_view what) {
    return InvalidKey(absl::StrCat(key, ".", what),
                      "differs from that of devices[0]; expected one "
                      "model, measured in the same way, on all");
  };
  if (model.precision() != first.precision()) return differs("precision");
  if (model.optimizer() != first.optimizer()) return differs("optimizer");
  if (model.time_steps() != first.time_steps()) return differs("time_steps");
  if (!std::equal(model.layers().begin(), model.layers().end(), first.layers().begin(),
                  first.layers().end(), SameLayer)) {
    return differs("layers");
  }
  const auto& sizes = model.shapes(0).sizes();
  const auto& first_sizes = first.shapes(0).sizes();
  if (!std::equal(sizes.begin(), sizes.end(), first_sizes.begin(), first_sizes.end(),
                  SameSamples)) {
    return differs("shapes[0].sizes");
  }
  return absl::OkStatus();
}

// Returns the names of the devices.
absl::StatusOr<std::set<std::string>> CheckDevices(const v1::ClusterProfile& profile) {
  if (profile.devices().empty()) {
    return InvalidKey("devices", "has none; expected one for each kind that a worker has");
  }
  std::set<std::string> names;
  for (int i = 0; i < profile.devices_size(); ++i) {
    const v1::DeviceProfile& device = profile.devices(i);
    const std::string key = absl::StrCat("devices[", i, "]");
    if (!names.insert(device.device()).second) {
      return InvalidKey(key + ".device", absl::StrCat(device.device(), " is there twice"));
    }
    const std::string model_key = key + ".model";
    if (const absl::Status valid = CheckModelProfile(device.model()); !valid.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(model_key, ".", valid.message()));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckAlike(model_key, device.model(), profile.devices(0).model()));
  }
  return names;
}

// Returns their names.
absl::StatusOr<std::set<std::string>> CheckWorkers(const v1::ClusterProfile& profile,
                                                   const std::set<std::string>& devices) {
  if (profile.workers().empty()) {
    return InvalidKey("workers", "has none; expected those of the cluster");
  }
  std::set<std::string> names;
  std::set<std::string> unused = devices;
  for (int i = 0; i < profile.workers_size(); ++i) {
    const v1::ProfiledWorker& worker = profile.workers(i);
    const std::string key = absl::StrCat("workers[", i, "]");
    if (worker.worker().empty()) return InvalidKey(key + ".worker", "is missing; expected a name");
    if (!names.insert(worker.worker()).second) {
      return InvalidKey(key + ".worker", absl::StrCat(worker.worker(), " is there twice"));
    }
    if (devices.count(worker.device()) == 0) {
      return InvalidKey(key + ".device", absl::StrCat(worker.device(), " is none of `devices`"));
    }
    unused.erase(worker.device());
    if (worker.memory_bytes() < 0 || worker.memory_bytes() > kMemoryBytesMax) {
      return InvalidKey(key + ".memory_bytes", absl::StrCat("is ", worker.memory_bytes(),
                                                            "; expected 0 to ", kMemoryBytesMax));
    }
    if (worker.offload_bytes_per_second() != 0.0) {
      PENSTOCK_RETURN_IF_ERROR(
          CheckRate(key + ".offload_bytes_per_second", worker.offload_bytes_per_second()));
    }
    if (worker.host().empty()) {
      return InvalidKey(key + ".host", "is missing; expected the machine that the worker runs on");
    }
  }
  if (!unused.empty()) {
    return InvalidKey("devices", absl::StrCat("has ", *unused.begin(), ", which no worker has"));
  }
  return names;
}

absl::Status CheckLinks(const v1::ClusterProfile& profile, const std::set<std::string>& workers) {
  std::set<std::pair<std::string, std::string>> known;
  for (int i = 0; i < profile.links_size(); ++i) {
    const v1::ProfiledLink& link = profile.links(i);
    const std::string key = absl::StrCat("links[", i, "]");
    for (const auto& [end, worker] : {std::pair{".from", link.from()}, {".to", link.to()}}) {
      if (workers.count(worker) == 0) {
        return InvalidKey(key + end, absl::StrCat(worker, " is none of `workers`"));
      }
    }
    if (link.from() == link.to()) {
      return InvalidKey(key + ".to", absl::StrCat(link.to(), " is where the link comes from"));
    }
    if (!known.emplace(link.from(), link.to()).second) {
      return InvalidKey(key,
                        absl::StrCat("from ", link.from(), " to ", link.to(), " is there twice"));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckLinkNumbers(key, link.latency_us(), link.bytes_per_second()));
  }
  for (const std::string& from : workers) {
    for (const std::string& to : workers) {
      if (from == to || known.count({from, to}) > 0) continue;
      return InvalidKey("links", absl::StrCat("lacks the one from ", from, " to ", to,
                                              "; expected one from every worker to every other"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

absl::Status CheckProfileSpec(const v1::ProfileSpec& spec) {
  if (spec.samples_size() < 1 || spec.samples_size() > kProfileSizesMax) {
    return InvalidKey("profile.samples",
                      absl::StrCat("has ", spec.samples_size(),
                                   " sizes of a microbatch; expected 1 to ", kProfileSizesMax));
  }
  int64_t least = 1;
  for (const int64_t samples : spec.samples()) {
    if (samples < least || samples > kProfileSamplesMax) {
      return InvalidKey("profile.samples",
                        absl::StrCat("has ", samples, " where ", least, " to ", kProfileSamplesMax,
                                     " was expected (ascending, each once)"));
    }
    least = samples + 1;
  }
  if (!(spec.seconds() >= 0.0 && spec.seconds() <= kProfileSecondsMax)) {
    return InvalidKey("profile.seconds",
                      absl::StrCat("is ", spec.seconds(), "; expected 0 to ", kProfileSecondsMax));
  }
  if (spec.workers() < 0 || spec.workers() > kProfileWorkersMax) {
    return InvalidKey("profile.workers", absl::StrCat("is ", spec.workers(), "; expected 1 to ",
                                                      kProfileWorkersMax, ", or 0: all"));
  }
  return absl::OkStatus();
}

absl::Status CheckLinkNumbers(const std::string& key, double latency_us, double bytes_per_second) {
  if (!(std::isfinite(latency_us) && latency_us >= 0.0)) {
    return InvalidKey(key + ".latency_us", absl::StrCat("is ", latency_us, "; expected 0 or more"));
  }
  return CheckRate(key + ".bytes_per_second", bytes_per_second);
}

absl::Status CheckRate(const std::string& key, double bytes_per_second) {
  if (std::isfinite(bytes_per_second) && bytes_per_second > 0.0) return absl::OkStatus();
  return InvalidKey(key, absl::StrCat("is ", bytes_per_second, "; expected more than 0"));
}

absl::Status CheckClusterProfile(const v1::ClusterProfile& profile) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::set<std::string> devices, CheckDevices(profile));
  PENSTOCK_ASSIGN_OR_RETURN(const std::set<std::string> workers, CheckWorkers(profile, devices));
  return CheckLinks(profile, workers);
}

absl::StatusOr<v1::ClusterProfile> ParseClusterProfile(absl::string_view text,
                                                       const std::string& file_name) {
  v1::ClusterProfile profile;
  YamlPositions positions;
  PENSTOCK_RETURN_IF_ERROR(ReadYamlMessage(text, file_name, profile, positions));
  if (const absl::Status valid = CheckClusterProfile(profile); !valid.ok()) {
    return WithPlace(valid, file_name, positions);
  }
  return profile;
}

absl::StatusOr<v1::ClusterProfile> ReadClusterProfile(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path));
  return ParseClusterProfile(text, path);
}

std::string PrintClusterProfile(const v1::ClusterProfile& profile) {
  return WriteYamlMessage(profile,
                          "What the devices of a cluster take for each layer, its workers, and the "
                          "links between them,\nmeasured by `penstock profile --coordinator`.");
}

}  // namespace penstock
