// Collectives: what the workers of a pipeline compute together before an update.
//
//   REDUCE  the gradient of a tied weight: each of the two stages that use it sends its part, and both
//           compute head + embedding, in this order, and then step their own copies identically;
//   NORM    the squared gradient norms of all layers, all to all, so that every worker combines the same
//           numbers in the same order (double, by layer), whatever the partition.
//
// Gradients stay on their devices where the two workers' processes can share them (transport.h); else they
// and all norms travel in host memory. All send before they receive, so no order of arrival can block them.
//
// Thread safety: the executor's thread; the counters may be read by any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "compute/backend.h"
#include "compute/stage.h"
#include "job/resolve.h"
#include "schedule/schedule.h"
#include "worker/action_timer.h"
#include "worker/courier.h"
#include "worker/transport.h"

namespace penstock {

struct CollectiveOptions {
  const ResolvedJob& job;
  const Topology& topology;
  const std::vector<LayerRange>& layers;  // by stage
  WorkerId worker;
  absl::Duration receive_timeout;
};

class Collectives {
 public:
  // Opens the edges to the workers that this one reduces or combines norms with.
  // REQUIRES: what the options and arguments refer to outlives the collectives.
  // Errors: Unimplemented (a group that is not the two uses of a tied weight); those of Transport.
  static absl::StatusOr<std::unique_ptr<Collectives>> Open(const CollectiveOptions& options,
                                                           Transport& transport, Backend& backend,
                                                           Clock& clock);

  // REDUCE of the tied weight. `embedding`, `head`: the stages that are on this worker, at least one.
  // With per-layer clipping the head's worker also learns the embedding layer's squared norm.
  // Errors: those of Courier.
  absl::Status ReduceTied(Stage* embedding, Stage* head, Courier& courier, ActionTimer& timer);
  // REQUIRES: per-layer clipping, and ReduceTied was called for this update.
  double embedding_squared_norm() const { return embedding_squared_norm_; }

  // NORM. `norms`: by layer of the chain; those of this worker's stages are filled in, the others are
  // filled in here. Errors: those of Courier.
  absl::Status CombineNorms(absl::Span<double> norms, Courier& courier, ActionTimer& timer);

  int64_t bytes_sent() const;
  int64_t messages_sent() const;
  std::vector<EdgePath> paths() const;
  // The worker at the other end of the message that failed.
  std::optional<WorkerId> failed_peer() const { return failed_peer_; }

 private:
  // The two edges to another worker; messages on each are numbered.
  struct Link {
    WorkerId peer;
    EdgeId out;
    std::unique_ptr<Sender> sender;
    std::unique_ptr<Receiver> receiver;
    int64_t sent = 0;
    int64_t received = 0;
  };

  Collectives(const CollectiveOptions& options, Backend& backend, Clock& clock);
  absl::Status OpenLinks(Transport& transport);
  Link& LinkTo(WorkerId peer);
  int64_t LayersOf(WorkerId worker) const;

  // Doubles travel as pairs of 32-bit words, so that no bit is lost.
  absl::Status SendDoubles(Link& link, absl::Span<const double> values, Courier& courier);
  absl::Status ReceiveDoubles(Link& link, absl::Span<double> values, ActionTimer& timer);

  absl::Status ReduceLocally(Stage& embedding, Stage& head);
  absl::Status ReduceWithPeer(Stage& own, Link& link, Courier& courier, ActionTimer& timer);
  absl::Status ShareEmbeddingNorm(Stage& own, Link& link, Courier& courier, ActionTimer& timer);
  absl::Time Deadline() const;
  // Calls `receive`, and tells the timer what of its time was waiting.
  template <typename Receive>
  std::invoke_result_t<Receive> Timed(Link& link, ActionTimer& timer, Receive receive);
  absl::Status Blame(const Link& link, const absl::Status& status);
  void CopyNorms(WorkerId worker, absl::Span<double> norms, absl::Span<double> packed, bool pack);

  const CollectiveOptions options_;
  Backend& backend_;
  Clock& clock_;
  std::vector<Link> links_;
  std::vector<double> packed_norms_;  // room for one worker's
  double embedding_squared_norm_ = 0.0;
  std::optional<WorkerId> failed_peer_;
};

}  // namespace penstock
