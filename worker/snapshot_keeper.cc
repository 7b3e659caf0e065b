#include "worker/snapshot_keeper.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "checkpoint/layout.h"

namespace penstock {
namespace {

absl::string_view HostOf(absl::string_view address) {
  return address.substr(0, address.rfind(':'));
}

}  // namespace

std::optional<v1::SnapshotHolder> PeerOf(const v1::Plan& plan, int32_t index) {
  std::vector<v1::SnapshotHolder> workers;
  for (const v1::StageAssignment& stage : plan.stages()) {
    if (stage.worker_index() >= static_cast<int>(workers.size())) {
      workers.resize(stage.worker_index() + 1);
    }
    v1::SnapshotHolder& worker = workers[stage.worker_index()];
    worker.set_worker(stage.worker());
    worker.set_address(stage.address());
    worker.set_incarnation(stage.incarnation());
  }
  const size_t count = workers.size();
  if (count < 2) return std::nullopt;
  const absl::string_view host = HostOf(workers[index].address());
  for (size_t i = 1; i < count; ++i) {
    const v1::SnapshotHolder& other = workers[(index + i) % count];
    if (HostOf(other.address()) != host) return other;
  }
  return workers[(index + 1) % count];
}

SnapshotKeeper::SnapshotKeeper(SnapshotPeers& peers, std::string job_id, int64_t epoch,
                               v1::SnapshotHolder peer, Done done)
    : peers_(peers),
      job_id_(std::move(job_id)),
      epoch_(epoch),
      peer_(std::move(peer)),
      done_(std::move(done)),
      writer_(peers.memory()) {}

void SnapshotKeeper::Keep(int64_t step, std::vector<LayerSnapshot> layers) {
  const std::string directory = SnapshotDirectory(job_id_, epoch_, step);
  writer_.Start(directory, std::move(layers),
                [this, step, directory](absl::StatusOr<std::vector<SavedLayer>> saved) {
                  if (!saved.ok()) return done_(step, saved.status());
                  absl::Status copied = Copy(directory, *saved);
                  done_(step, Kept{*std::move(saved), peer_, std::move(copied)});
                });
}

absl::Status SnapshotKeeper::Copy(const std::string& directory,
                                  const std::vector<SavedLayer>& layers) {
  for (const SavedLayer& layer : layers) {
    for (const CheckpointFile& file : layer.files) {
      PENSTOCK_RETURN_IF_ERROR(peers_.Send(peer_, JoinPath(directory, file.name),
                                           [this] { return writer_.cancelled(); }));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
