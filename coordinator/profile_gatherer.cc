#include "coordinator/profile_gatherer.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/profile/cluster_profile.h"
#include "job/profile/model_profile.h"
#include "model/describe.h"

namespace penstock {
namespace {

std::vector<int64_t> SamplesOf(const v1::ShapeProfile& shape) {
  std::vector<int64_t> samples;
  for (const v1::SizeProfile& size : shape.sizes()) samples.push_back(size.samples());
  return samples;
}

}  // namespace

ProfileGatherer::ProfileGatherer(v1::ProfileSpec spec, const ResolvedJob& job,
                                 std::vector<WorkerOffer> workers)
    : spec_(std::move(spec)),
      job_(job),
      workers_(std::move(workers)),
      layers_(workers_.size()),
      done_(workers_.size(), 0),
      links_(workers_.size()),
      offload_bytes_per_second_(workers_.size(), 0.0) {
  for (int32_t i = 0; i < this->workers(); ++i) {
    const auto known = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
      return kind.times.device() == workers_[i].device;
    });
    kind_of_.push_back(known - kinds_.begin());
    Kind& kind = known != kinds_.end() ? *known : kinds_.emplace_back();
    kind.workers.push_back(i);
    kind.times.set_device(workers_[i].device);
  }
  for (Kind& kind : kinds_) {
    const std::string& first = workers_[kind.workers.front()].name;
    const size_t others = kind.workers.size() - 1;
    kind.times.set_timed_on(others == 0 ? first : absl::StrCat(first, " and ", others, " more"));
  }
}

std::vector<std::string> ProfileGatherer::Keys() const {
  std::vector<std::string> keys;
  for (const Kind& kind : kinds_) keys.push_back(KeyOf(kind));
  return keys;
}

// Leaves out how long each measurement lasts: a user who wants better times asks for fresh ones.
std::string ProfileGatherer::KeyOf(const Kind& kind) const {
  std::string key = absl::StrCat(
      "device ", kind.times.device(), "\nbuild ", workers_[kind.workers.front()].build,
      "\nworkers_on_host ", WorkersOnHost(kind), "\nthreads ", job_.threads, "\nrepeatability ",
      static_cast<int>(job_.repeatability), "\nprecision ", static_cast<int>(job_.precision),
      "\noptimizer ", absl::string_view(KindOf(job_.optimizer)), "\ntime_steps ",
      job_.model.targets_per_sample(), "\nsamples ", absl::StrJoin(spec_.samples(), ","));
  for (const int layer : FirstLayersOfShapes(job_.model)) {
    absl::StrAppend(&key, "\nshape ", DescribeWork(job_.model, job_.model.layers[layer]));
  }
  return key;
}

void ProfileGatherer::TakeKnown(absl::Span<const std::optional<v1::DeviceProfile>> known) {
  std::vector<std::optional<v1::DeviceProfile>> known_times(kinds_.size());
  for (size_t i = 0; i < std::min(known.size(), kinds_.size()); ++i) {
    if (!known[i].has_value() || known[i]->device() != kinds_[i].times.device()) continue;
    v1::DeviceProfile times = *known[i];
    // The times may be of another model, with other numbers of layers of the same shapes.
    SetLayers(job_.model, job_.precision, *times.mutable_model());
    if (!CheckModel(times.model()).ok()) continue;
    times.set_cached(true);
    known_times[i] = std::move(times);
  }
  // One that times its layers without the others of its host would find shorter times than its key stands for.
  for (bool leaves_out = true; leaves_out;) {
    std::set<std::string> timing_hosts;
    for (int32_t i = 0; i < workers(); ++i) {
      if (!known_times[kind_of_[i]]) timing_hosts.insert(HostOf(workers_[i].address));
    }
    leaves_out = false;
    for (int32_t i = 0; i < workers(); ++i) {
      std::optional<v1::DeviceProfile>& times = known_times[kind_of_[i]];
      if (!times || timing_hosts.count(HostOf(workers_[i].address)) == 0) continue;
      times.reset();
      leaves_out = true;
    }
  }
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (known_times[i]) kinds_[i].times = *std::move(known_times[i]);
  }
}

std::vector<std::string> ProfileGatherer::Notes() const {
  std::vector<std::string> notes;
  for (const Kind& kind : kinds_) {
    const v1::DeviceProfile& times = kind.times;
    notes.push_back(
        times.cached()
            ? absl::StrCat(times.device(), ": the times of these layers are known from ",
                           times.timed_on(), "; --fresh measures them again")
            : absl::StrCat(times.device(), ": the layers are timed on ", times.timed_on()));
  }
  return notes;
}

int64_t ProfileGatherer::WorkersOnHost(const Kind& kind) const {
  std::map<std::string, int64_t> on_host;
  for (const WorkerOffer& worker : workers_) ++on_host[HostOf(worker.address)];
  int64_t most = 0;
  for (const int32_t i : kind.workers) most = std::max(most, on_host[HostOf(workers_[i].address)]);
  return most;
}

bool ProfileGatherer::TimesLayers(int32_t worker_index) const {
  return !KindOfWorker(worker_index).times.cached();
}

bool ProfileGatherer::KnowsLayers() const {
  return std::all_of(kinds_.begin(), kinds_.end(),
                     [](const Kind& kind) { return kind.times.cached(); });
}

int64_t ProfileGatherer::MeasurementsOf(int32_t worker_index) const {
  const int64_t links = workers() - 1;
  if (!TimesLayers(worker_index)) return links;
  return links +
         static_cast<int64_t>(FirstLayersOfShapes(job_.model).size()) * spec_.samples_size();
}

int64_t ProfileGatherer::done() const {
  int64_t done = 0;
  for (int32_t i = 0; i < workers(); ++i) done += std::min(done_[i], MeasurementsOf(i));
  return done;
}

int64_t ProfileGatherer::total() const {
  int64_t total = 0;
  for (int32_t i = 0; i < workers(); ++i) total += MeasurementsOf(i);
  return total;
}

void ProfileGatherer::OnBegun(int32_t worker_index, const v1::MeasurementBegun& begun) {
  done_[worker_index] = std::max(done_[worker_index], begun.done());
}

absl::Status ProfileGatherer::OnLinks(int32_t worker_index, const v1::LinksMeasured& measured) {
  std::set<int32_t> others;
  for (const v1::MeasuredLink& link : measured.links()) {
    const int32_t to = link.to_worker_index();
    const std::string key = absl::StrCat("the link to worker ", to);
    if (to < 0 || to >= workers() || to == worker_index || !others.insert(to).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": is not one of those to the ", workers() - 1, " others, each once"));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckLinkNumbers(key, link.latency_us(), link.bytes_per_second()));
  }
  if (static_cast<int32_t>(others.size()) != workers() - 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("measured ", others.size(), " links instead of ", workers() - 1));
  }
  links_[worker_index] = measured;
  done_[worker_index] = std::max<int64_t>(done_[worker_index], workers() - 1);
  return absl::OkStatus();
}

absl::Status ProfileGatherer::OnCopies(int32_t worker_index, const v1::CopiesMeasured& measured) {
  PENSTOCK_RETURN_IF_ERROR(CheckRate("copies.bytes_per_second", measured.bytes_per_second()));
  offload_bytes_per_second_[worker_index] = measured.bytes_per_second();
  return absl::OkStatus();
}

absl::Status ProfileGatherer::CheckModel(const v1::ModelProfile& model) const {
  PENSTOCK_RETURN_IF_ERROR(CheckModelProfile(model));
  PENSTOCK_RETURN_IF_ERROR(CheckProfileFits(model, job_.model));
  // In the order of their first layers, so that the times of several workers have the same places.
  const std::vector<int> firsts = FirstLayersOfShapes(job_.model);
  bool in_order = model.shapes_size() == static_cast<int>(firsts.size());
  for (int i = 0; in_order && i < model.shapes_size(); ++i) {
    in_order = model.shapes(i).shape() == DescribeWork(job_.model, job_.model.layers[firsts[i]]);
  }
  if (!in_order) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", model.shapes_size(), " shapes of layers; expected the model's ",
                     firsts.size(), ", in the order of their first layers"));
  }
  const std::vector<int64_t> samples(spec_.samples().begin(), spec_.samples().end());
  if (SamplesOf(model.shapes(0)) == samples) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("was asked for microbatches of ",
                                                 absl::StrJoin(samples, ", "), " samples and has ",
                                                 absl::StrJoin(SamplesOf(model.shapes(0)), ", ")));
}

absl::Status ProfileGatherer::OnLayers(int32_t worker_index, const v1::LayersTimed& timed) {
  if (!TimesLayers(worker_index)) {
    return absl::InvalidArgumentError("timed layers that nobody asked it for");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckModel(timed.model()));
  layers_[worker_index] = timed.model();
  done_[worker_index] = MeasurementsOf(worker_index);
  Kind& kind = kinds_[kind_of_[worker_index]];
  std::vector<v1::ModelProfile> reported;
  for (const int32_t i : kind.workers) {
    if (layers_[i].has_value()) reported.push_back(*layers_[i]);
  }
  if (reported.size() == kind.workers.size()) *kind.times.mutable_model() = MeanTimes(reported);
  return absl::OkStatus();
}

absl::Status ProfileGatherer::CheckDone(int32_t worker_index) const {
  if (workers() > 1 && !links_[worker_index].has_value()) {
    return absl::InvalidArgumentError("ended without its links");
  }
  if (TimesLayers(worker_index) && !layers_[worker_index].has_value()) {
    return absl::InvalidArgumentError("ended without the times of the layers");
  }
  return absl::OkStatus();
}

std::optional<KeepLayerTimes> ProfileGatherer::Kept(int32_t worker_index) const {
  const Kind& kind = KindOfWorker(worker_index);
  if (!kind.times.has_model()) return std::nullopt;
  return KeepLayerTimes{.key = KeyOf(kind), .times = kind.times};
}

v1::ClusterProfile ProfileGatherer::Result() const {
  v1::ClusterProfile profile;
  for (const Kind& kind : kinds_) *profile.add_devices() = kind.times;
  for (int32_t i = 0; i < workers(); ++i) {
    v1::ProfiledWorker& entry = *profile.add_workers();
    entry.set_worker(workers_[i].name);
    entry.set_device(workers_[i].device);
    entry.set_memory_bytes(workers_[i].memory_bytes);
    entry.set_host(HostOf(workers_[i].address));
    entry.set_offload_bytes_per_second(offload_bytes_per_second_[i]);
  }
  for (int32_t from = 0; from < workers(); ++from) {
    if (!links_[from].has_value()) continue;  // the only worker
    for (const v1::MeasuredLink& link : links_[from]->links()) {
      v1::ProfiledLink& entry = *profile.add_links();
      entry.set_from(workers_[from].name);
      entry.set_to(workers_[link.to_worker_index()].name);
      entry.set_latency_us(link.latency_us());
      entry.set_bytes_per_second(link.bytes_per_second());
    }
  }
  return profile;
}

}  // namespace penstock
