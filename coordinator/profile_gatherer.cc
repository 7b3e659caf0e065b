#include "coordinator/profile_gatherer.h"

#include <algorithm>
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
      done_(workers_.size(), 0),
      links_(workers_.size()) {
  for (int32_t i = 0; i < this->workers(); ++i) {
    const WorkerOffer& worker = workers_[i];
    const bool known = std::any_of(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
      return kind.times.device() == worker.device;
    });
    if (known) continue;
    Kind& kind = kinds_.emplace_back();
    kind.timed_by = i;
    kind.times.set_device(worker.device);
    kind.times.set_timed_on(worker.name);
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
      "device ", kind.times.device(), "\nbuild ", workers_[kind.timed_by].build, "\nthreads ",
      job_.threads, "\nrepeatability ", static_cast<int>(job_.repeatability), "\nprecision ",
      static_cast<int>(job_.precision), "\noptimizer ", absl::string_view(KindOf(job_.optimizer)),
      "\ntime_steps ", job_.model.targets_per_sample(), "\nsamples ",
      absl::StrJoin(spec_.samples(), ","));
  for (const int layer : FirstLayersOfShapes(job_.model)) {
    absl::StrAppend(&key, "\nshape ", penstock::Describe(job_.model, job_.model.layers[layer]));
  }
  return key;
}

void ProfileGatherer::TakeKnown(absl::Span<const std::optional<v1::DeviceProfile>> known) {
  for (size_t i = 0; i < std::min(known.size(), kinds_.size()); ++i) {
    if (!known[i].has_value() || known[i]->device() != kinds_[i].times.device()) continue;
    v1::DeviceProfile times = *known[i];
    // The times may be of another model, with other numbers of layers of the same shapes.
    SetLayers(job_.model, job_.precision, *times.mutable_model());
    if (!CheckModel(times.model()).ok()) continue;
    times.set_cached(true);
    kinds_[i].times = std::move(times);
  }
}

std::vector<std::string> ProfileGatherer::Notes() const {
  std::vector<std::string> notes;
  for (const Kind& kind : kinds_) {
    const v1::DeviceProfile& times = kind.times;
    notes.push_back(
        times.cached()
            ? absl::StrCat(times.device(), ": the times of these layers are known from worker ",
                           times.timed_on(), "; --fresh measures them again")
            : absl::StrCat(times.device(), ": worker ", times.timed_on(), " times the layers"));
  }
  return notes;
}

const ProfileGatherer::Kind* ProfileGatherer::KindTimedBy(int32_t worker_index) const {
  for (const Kind& kind : kinds_) {
    if (kind.timed_by == worker_index && !kind.times.cached()) return &kind;
  }
  return nullptr;
}

bool ProfileGatherer::TimesLayers(int32_t worker_index) const {
  return KindTimedBy(worker_index) != nullptr;
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

absl::Status ProfileGatherer::CheckModel(const v1::ModelProfile& model) const {
  PENSTOCK_RETURN_IF_ERROR(CheckModelProfile(model));
  PENSTOCK_RETURN_IF_ERROR(CheckProfileFits(model, job_.model));
  const std::vector<int64_t> samples(spec_.samples().begin(), spec_.samples().end());
  if (SamplesOf(model.shapes(0)) == samples) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("was asked for microbatches of ",
                                                 absl::StrJoin(samples, ", "), " samples and has ",
                                                 absl::StrJoin(SamplesOf(model.shapes(0)), ", ")));
}

absl::Status ProfileGatherer::OnLayers(int32_t worker_index, const v1::LayersTimed& timed) {
  const Kind* kind = KindTimedBy(worker_index);
  if (kind == nullptr) return absl::InvalidArgumentError("timed layers that nobody asked it for");
  PENSTOCK_RETURN_IF_ERROR(CheckModel(timed.model()));
  *kinds_[kind - kinds_.data()].times.mutable_model() = timed.model();
  done_[worker_index] = MeasurementsOf(worker_index);
  return absl::OkStatus();
}

absl::Status ProfileGatherer::CheckDone(int32_t worker_index) const {
  if (workers() > 1 && !links_[worker_index].has_value()) {
    return absl::InvalidArgumentError("ended without its links");
  }
  const Kind* kind = KindTimedBy(worker_index);
  if (kind != nullptr && !kind->times.has_model()) {
    return absl::InvalidArgumentError("ended without the times of the layers");
  }
  return absl::OkStatus();
}

KeepLayerTimes ProfileGatherer::Kept(int32_t worker_index) const {
  const Kind& kind = *KindTimedBy(worker_index);
  return {.key = KeyOf(kind), .times = kind.times};
}

v1::ClusterProfile ProfileGatherer::Result() const {
  v1::ClusterProfile profile;
  for (const Kind& kind : kinds_) *profile.add_devices() = kind.times;
  for (const WorkerOffer& worker : workers_) {
    v1::ProfiledWorker& entry = *profile.add_workers();
    entry.set_worker(worker.name);
    entry.set_device(worker.device);
    entry.set_memory_bytes(worker.memory_bytes);
    entry.set_host(HostOf(worker.address));
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
