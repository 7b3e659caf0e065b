// ProfileGatherer: a cluster's profile while it comes together: which workers time the layers, whose times are
// known already, and what the workers report.
//
// All workers time the layers, at once, as all workers of a pipeline compute at once: those of one host share its memory
// and caches, and are slower than one alone. Workers of one kind of device (as they introduce themselves) take the same,
// so that the mean of their times is that of the kind. A kind that an earlier profile timed with as many workers on a host
// is not timed again, unless others on its hosts are: theirs would then be the times of a host that is partly idle. Links
// are between pairs of workers and belong to the network of this hour: they are never taken from earlier.
//
// A state machine without I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "coordinator/effects.h"
#include "job/resolve.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/assign.h"

namespace penstock {

class ProfileGatherer {
 public:
  // `workers`: those that take part, in the order of their indices. REQUIRES: `job` outlives this; there is a
  // worker; CheckProfileSpec is OK.
  ProfileGatherer(v1::ProfileSpec spec, const ResolvedJob& job, std::vector<WorkerOffer> workers);

  // Returns, by kind of device, all that its layer times depend on, as a text to look them up by.
  std::vector<std::string> Keys() const;
  // Takes what was found, by kind. Times of another model or other sizes do not count, nor do those of a kind on a host
  // where another kind is timed now.
  void TakeKnown(absl::Span<const std::optional<v1::DeviceProfile>> known);
  // Returns, by kind and for people, whether its layers are timed, or who timed them.
  std::vector<std::string> Notes() const;

  bool TimesLayers(int32_t worker_index) const;
  // Returns whether no worker needs to time any.
  bool KnowsLayers() const;
  // Measurements: links, and layers of each shape and size.
  int64_t done() const;
  int64_t total() const;

  // ---- Reports of the worker with this index.
  void OnBegun(int32_t worker_index, const v1::MeasurementBegun& begun);
  // Errors, of all the rest: InvalidArgument saying what is wrong with the report.
  absl::Status OnLinks(int32_t worker_index, const v1::LinksMeasured& measured);
  absl::Status OnCopies(int32_t worker_index, const v1::CopiesMeasured& measured);
  absl::Status OnLayers(int32_t worker_index, const v1::LayersTimed& timed);
  // Checks that it has reported all it was to measure.
  absl::Status CheckDone(int32_t worker_index) const;

  // Returns what this worker's kind takes, to be kept for later, once all workers of the kind have reported. REQUIRES:
  // OnLayers was OK for it.
  std::optional<KeepLayerTimes> Kept(int32_t worker_index) const;
  // REQUIRES: CheckDone is OK for all workers.
  v1::ClusterProfile Result() const;

 private:
  struct Kind {
    std::vector<int32_t> workers;  // of this kind, ascending
    v1::DeviceProfile
        times;  // `cached` from the start, or without a model until all of them have reported
  };

  int32_t workers() const { return static_cast<int32_t>(workers_.size()); }
  const Kind& KindOfWorker(int32_t worker_index) const { return kinds_[kind_of_[worker_index]]; }
  std::string KeyOf(const Kind& kind) const;
  // The most that take part on one host on which there is a worker of this kind.
  int64_t WorkersOnHost(const Kind& kind) const;
  // Errors: InvalidArgument.
  absl::Status CheckModel(const v1::ModelProfile& model) const;
  int64_t MeasurementsOf(int32_t worker_index) const;

  const v1::ProfileSpec spec_;
  const ResolvedJob& job_;
  const std::vector<WorkerOffer> workers_;
  std::vector<Kind> kinds_;                              // in the order of their first workers
  std::vector<size_t> kind_of_;                          // by worker
  std::vector<std::optional<v1::ModelProfile>> layers_;  // by worker: what it timed
  std::vector<int64_t> done_;                            // by worker
  std::vector<std::optional<v1::LinksMeasured>> links_;  // by worker
  std::vector<double> offload_bytes_per_second_;         // by worker; 0: it did not say
};

}  // namespace penstock
