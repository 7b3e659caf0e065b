// Collectives: what the workers of a pipeline compute together before an update.
//
//   REDUCE  the gradients of parameters that several stages share: all come to the sum of the uses, from the last to
//           the first (schedule/tied_sum.h), and then step their own copies identically
//           (replicas on one worker average their weights without messages, Stage::Average);
//           where pipelines go there and back, also the weights of a part of the model: the worker that updated
//           them sends them to the others;
//           of the replicas of a stage, their gradients (replica_sum.cc), which BEGIN_REDUCE lets leave while the last
//           W is under way;
//   NORM    the squared gradient norms of all layers, all to all, so that every worker combines the same
//           numbers in the same order (double, by layer), whatever the partition.
//
// Two workers with a device each add their gradients up as a group (device_pair.h), if their
// devices can. Else each sends its part to the other: from device to device where their processes
// can share memory (transport.h), or in host memory, as all norms do. paths() says which it is. All
// send before they receive, so no order of arrival can block them.
//
// Thread safety: the executor's thread; the counters may be read by any.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "compute/backend.h"
#include "compute/gradient_buckets.h"
#include "compute/stage.h"
#include "job/resolve.h"
#include "job/run/ties.h"
#include "schedule/schedule.h"
#include "schedule/tied_sum.h"
#include "worker/action_timer.h"
#include "worker/counter.h"
#include "worker/courier.h"
#include "worker/device_pair.h"
#include "worker/transport.h"

namespace penstock {

struct CollectiveOptions {
  const ResolvedJob& job;
  const Topology& topology;
  const std::vector<LayerRange>& layers;  // by stage
  WorkerId worker;
  absl::Duration receive_timeout;
  // Told, once for each peer, how gradients travel where devices could have been a group.
  std::function<void(const std::string&)> notice;
  std::vector<std::string> names;  // of the workers, for it
};

class Collectives {
 public:
  // Opens the edges to the workers that this one reduces or combines norms with. REQUIRES: what the
  // options and arguments refer to outlives the collectives. Errors: Unimplemented (a group that is
  // neither of stages that share parameters, nor the replicas of a stage, nor copies of weights, nor
  // replicas of the model on one worker); those of Transport.
  static absl::StatusOr<std::unique_ptr<Collectives>> Open(const CollectiveOptions& options,
                                                           Transport& transport, Backend& backend,
                                                           Clock& clock);

  // REDUCE of a group. `members`: by stage of the group, null where another worker has it.
  // `version`: of copied weights, the one that this worker's stages then have.
  //
  // Shared parameters: with per-layer clipping all members also learn the squared norms of the layers that these
  // belong to. Where places have replicas, each place's own group must have been reduced before.
  // Replicas: the sum of their gradients, added up in the order of the replicas, or their mean, as
  // `combine` says; the same bits on all of them. Errors: those of Courier, and of
  // Stage::AdoptWeights.
  struct Combine {
    ReduceGroup::Operation operation = ReduceGroup::Operation::kSum;  // or kMean
    // That of this replica's gradients in the mean; absent: all weigh the same.
    std::optional<float> weight;
  };
  absl::Status Reduce(GroupId id, absl::Span<Stage* const> members, int64_t version,
                      Combine combine, Courier& courier, ActionTimer& timer);

  // BEGIN_REDUCE of a group of replicas: from now on, parts of the gradients of `own` may leave before Reduce, which ends
  // what was begun first. REQUIRES: `own` outlives that.
  void BeginReduce(GroupId id, Stage& own);
  // The gradients of `layer` of the stage, and of those behind it, are whole; `combine` as in Reduce. Goes on without
  // waiting. REQUIRES: BeginReduce. Errors: those of Courier.
  absl::Status LayerDone(GroupId id, int layer, Combine combine, Courier& courier);
  // Takes what has come for reductions that have begun, and sends what can be sent, without waiting. Errors: those of
  // Courier.
  absl::Status GoOn(Courier& courier);
  bool has_begun() const { return !begun_.empty(); }
  // Of a layer of the model. REQUIRES: per-layer clipping, and that parameters of the layer which a stage here shares
  // were reduced for this update.
  double owner_squared_norm(int layer) const { return owner_squared_norms_[layer]; }

  // What the replicas of a stage keep beside their weights (Stage::Buffers), where nothing is in flight: all come to the
  // same, the mean of their statistics, and what each of them carries. Errors: those of Courier.
  absl::Status CombineBuffers(GroupId id, Stage& own, Courier& courier, ActionTimer& timer);

  // Brings together the losses of `count` microbatches in a row, `width` numbers each, which go
  // through the members of `group` in turn. `own`: those of this worker's, in order. On the first
  // member `all` becomes those of all in the order of the microbatches, elsewhere empty. Errors:
  // those of Courier.
  absl::Status GatherLosses(const ReduceGroup& group, int64_t count, int64_t width,
                            absl::Span<const double> own, std::vector<double>& all,
                            Courier& courier, ActionTimer& timer);

  // NORM. `norms`: by layer of the model; those of this worker's stages are filled in, the others
  // are filled in here. Errors: those of Courier.
  absl::Status CombineNorms(absl::Span<double> norms, Courier& courier, ActionTimer& timer);

  // Gives all workers the number that `from` has; REQUIRES: job.stop_after > 0, for which all are linked. Errors: those of
  // Courier.
  absl::Status Share(WorkerId from, double& number, Courier& courier, ActionTimer& timer);

  // The tensors that a group combines, which decide how.
  enum class GroupKind : uint8_t { kTied, kReplicas, kCopies, kLocalMean };

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
    bool agreed = false;                 // whether there is a group
    std::unique_ptr<DeviceGroup> group;  // null: gradients travel over the edges
    Counter sums;                        // by the group
    Counter summed_bytes;                // of this worker's parts
  };

  Collectives(const CollectiveOptions& options, Backend& backend, Clock& clock);
  static absl::StatusOr<GroupKind> KindOfGroup(const ReduceGroup& group, const Topology& topology);
  absl::Status OpenLinks(Transport& transport);
  Link& LinkTo(WorkerId peer);
  int64_t LayersOf(WorkerId worker) const;

  // Doubles travel as pairs of 32-bit words, so that no bit is lost.
  absl::Status SendBytes(Link& link, const void* data, int64_t size_bytes, Courier& courier);
  absl::Status ReceiveBytes(Link& link, void* data, int64_t size_bytes, Courier& courier,
                            ActionTimer& timer);

  // An f32 array on the device.
  absl::Status SendFloats(Link& link, const Tensor& tensor, Courier& courier);
  absl::StatusOr<Tensor> ReceiveFloats(Link& link, const Shape& shape, Courier& courier,
                                       ActionTimer& timer);
  absl::StatusOr<Tensor> TakeFloats(Link& link, const Shape& shape, Courier& courier);
  absl::StatusOr<Tensor> CopyOf(const float* array, const Shape& shape);
  WorkerId WorkerOf(const ReduceGroup& group, int64_t member) const {
    return options_.topology.worker(group.stages[member]);
  }
  // Which member of a group of replicas this worker is.
  int64_t RankIn(const ReduceGroup& group) const;
  // An array that becomes the sum over all replicas, added up in their order, or that divided by their number.
  struct ReplicaSum {
    GroupId group;
    Tensor own;  // [floats]
    absl::Span<const GradientBucket> buckets;
    // The messages of a turn, in this order.
    enum class Phase : uint8_t { kSendParts, kAddParts, kSendSum, kTakeSums };
    int64_t whole = 0;  // buckets that may leave
    bool is_mean = false;
    // What is next.
    int64_t turn = 0;
    Phase phase = Phase::kSendParts;
    int64_t message = 0;  // of the phase
    Tensor before;        // the sum of the replicas before this one
    Tensor sum;           // while it is sent
    // When the first message left, and the last one came.
    int64_t first_ns = 0;
    int64_t last_ns = 0;
  };
  static bool IsMean(Combine combine) {
    // With weights of their own the sum is the mean.
    return combine.operation == ReduceGroup::Operation::kMean && !combine.weight.has_value();
  }
  // Lets the buckets leave that are whole with `layer`.
  void AddWhole(ReplicaSum& sum, int layer, Combine combine);
  // Goes on with the messages, as far as it can; with a timer, waits. Returns whether all are done.
  absl::StatusOr<bool> Advance(ReplicaSum& sum, Courier& courier, ActionTimer* timer);
  // One phase of a bucket. Returns false if it would have to wait.
  absl::StatusOr<bool> Exchange(ReplicaSum& sum, const GradientBucket& bucket, Courier& courier,
                                ActionTimer* timer);
  absl::StatusOr<bool> SendParts(ReplicaSum& sum, const GradientBucket& bucket, Courier& courier,
                                 bool waits);
  absl::StatusOr<bool> AddParts(ReplicaSum& sum, const GradientBucket& bucket, Courier& courier,
                                ActionTimer* timer);
  absl::StatusOr<bool> SendSum(ReplicaSum& sum, const GradientBucket& bucket, Courier& courier,
                               bool waits);
  absl::StatusOr<bool> TakeSums(ReplicaSum& sum, const GradientBucket& bucket, Courier& courier,
                                ActionTimer* timer);

  // What this worker does for a group of stages that share parameters: the messages that come or go here, in order.
  struct TiedPlan {
    struct Sum {
      int tie = 0;
      bool exchanges = false;
      std::vector<StageId> lasts;  // here, that have the last uses
      std::vector<TiedMessage> messages;
    };
    std::vector<Sum> sums;
    std::vector<int> owners;         // layers, whose norms the members learn
    StageId first;                   // here, which has these layers; -1: none
    std::vector<TiedMessage> norms;  // from worker to worker
  };
  TiedPlan TiedPlanOf(GroupId id, absl::Span<const TieGroup> ties) const;
  absl::Status ReduceTied(GroupId id, absl::Span<Stage* const> members, Courier& courier,
                          ActionTimer& timer);
  // A sum that goes from stage to stage, and one that two workers make at the same time.
  absl::Status AddInTurn(const TiedPlan::Sum& sum, const ReduceGroup& group,
                         absl::Span<Stage* const> members, Courier& courier, ActionTimer& timer);
  absl::Status Exchange(const TiedPlan::Sum& sum, Stage& own, Courier& courier, ActionTimer& timer);
  absl::Status ShareOwnerNorms(const TiedPlan& plan, const ReduceGroup& group,
                               absl::Span<Stage* const> members, Courier& courier,
                               ActionTimer& timer);
  bool IsHere(StageId stage) const { return options_.topology.worker(stage) == options_.worker; }
  Link& LinkToStage(StageId stage) { return LinkTo(options_.topology.worker(stage)); }
  absl::Status ReduceReplicas(GroupId id, Stage& own, Combine combine, Courier& courier,
                              ActionTimer& timer);
  absl::Status CopyWeights(GroupId group, int64_t version, Stage& stage, Courier& courier,
                           ActionTimer& timer);
  absl::Status SendWeights(const std::vector<WorkerId>& members, Stage& stage, Courier& courier);
  absl::Status SumInGroup(const Tensor& part, Link& link, Courier& courier, ActionTimer& timer);
  // Becomes a group with the peer, or not.
  absl::Status Agree(Link& link, Courier& courier, ActionTimer& timer);
  absl::Time Deadline() const;
  // Calls `receive`, and tells the timer what of its time was waiting.
  template <typename Receive>
  std::invoke_result_t<Receive> Timed(Link& link, ActionTimer& timer, Receive receive);
  absl::Status Blame(const Link& link, const absl::Status& status);
  void CopyNorms(WorkerId worker, absl::Span<double> norms, absl::Span<double> packed, bool pack);

  const CollectiveOptions options_;
  Backend& backend_;
  Clock& clock_;
  std::vector<GroupKind> kinds_;                      // by group
  std::vector<TiedPlan> tied_;                        // by group; of others empty
  std::vector<std::vector<WorkerId>> members_;        // by group
  std::vector<std::vector<GradientBucket>> buckets_;  // by group; of others than replicas empty
  std::deque<ReplicaSum> begun_;                      // in the order in which they began
  std::deque<Link> links_;                            // which do not move
  std::vector<double> packed_norms_;                  // room for one worker's
  std::vector<double> packed_losses_;                 // room for one replica's
  std::vector<double> owner_squared_norms_;           // by layer of the model
  std::vector<double> sent_norms_;                    // room for those of a group
  std::optional<WorkerId> failed_peer_;
};

template <typename Receive>
std::invoke_result_t<Receive> Collectives::Timed(Link& link, ActionTimer& timer, Receive receive) {
  timer.Lap(Lane::kCollective);
  const bool waits = !link.receiver->Ready();
  auto received = receive();
  if (waits) timer.Lap(Lane::kWait, Wait::kCollective);
  return received;
}

}  // namespace penstock
