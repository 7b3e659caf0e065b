#include "worker/collectives.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/buffer_layout.h"
#include "job/run/message_bytes.h"
#include "worker/acquire.h"
#include "worker/evaluation.h"
#include "worker/limits.h"

namespace penstock {
namespace {

constexpr int64_t kDoubleBytes = sizeof(double);
constexpr int64_t kWordBytes = sizeof(int32_t);
static_assert(sizeof(PairMessage) % kWordBytes == 0);

// The replicas of one stage, on one worker.
bool IsLocalMean(const ReduceGroup& group, const Topology& topology) {
  const StageWiring& first = topology[group.stages.front()];
  return group.quantity == ReduceGroup::Quantity::kWeight &&
         group.operation == ReduceGroup::Operation::kMean &&
         std::all_of(group.stages.begin(), group.stages.end(), [&](StageId stage) {
           return topology[stage].place == first.place && topology[stage].worker == first.worker;
         });
}

std::set<WorkerId> PeersOf(const CollectiveOptions& options) {
  const Topology& topology = options.topology;
  std::set<WorkerId> peers;
  for (const ReduceGroup& group : topology.groups) {
    std::set<WorkerId> members;
    for (StageId stage : group.stages) members.insert(topology.worker(stage));
    if (members.count(options.worker) > 0) peers.merge(members);
  }
  if (options.job.clip.kind == Clip::Kind::kGlobalNorm || options.job.stop_after > 0) {
    for (int32_t worker = 0; worker < topology.workers; ++worker) peers.insert(WorkerId(worker));
  }
  peers.erase(options.worker);
  return peers;
}

// The largest message of any group of one kind, of `bytes(layers, members)` for a stage.
template <typename Bytes>
int64_t LargestMessage(const CollectiveOptions& options,
                       const std::vector<Collectives::GroupKind>& kinds,
                       Collectives::GroupKind kind, const Bytes& bytes) {
  int64_t largest = 0;
  for (size_t id = 0; id < kinds.size(); ++id) {
    if (kinds[id] != kind) continue;
    const std::vector<StageId>& stages = options.topology.groups[id].stages;
    const LayerRange range = options.layers[stages.front().value];
    largest = std::max(largest, bytes(range, static_cast<int64_t>(stages.size())));
  }
  return largest;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collectives>> Collectives::Open(const CollectiveOptions& options,
                                                               Transport& transport,
                                                               Backend& backend, Clock& clock) {
  auto collectives = std::unique_ptr<Collectives>(new Collectives(options, backend, clock));
  for (const ReduceGroup& group : options.topology.groups) {
    PENSTOCK_ASSIGN_OR_RETURN(collectives->kinds_.emplace_back(),
                              KindOfGroup(group, options.topology));
  }
  const std::vector<TieGroup> ties =
      TieGroupsOf(options.job.model, LayersOfParts(options.topology, options.layers));
  for (size_t id = 0; id < collectives->kinds_.size(); ++id) {
    std::vector<GradientBucket>& buckets = collectives->buckets_.emplace_back();
    if (collectives->kinds_[id] == GroupKind::kReplicas) {
      const StageId first = options.topology.groups[id].stages.front();
      buckets = GradientBucketsOfLayers(options.job.model, options.layers[first.value]);
    }
    TiedPlan& plan = collectives->tied_.emplace_back();
    if (collectives->kinds_[id] != GroupKind::kTied) continue;
    plan = collectives->TiedPlanOf(GroupId(static_cast<int32_t>(id)), ties);
  }
  PENSTOCK_RETURN_IF_ERROR(collectives->OpenLinks(transport));
  return collectives;
}

Collectives::Collectives(const CollectiveOptions& options, Backend& backend, Clock& clock)
    : options_(options),
      backend_(backend),
      clock_(clock),
      packed_norms_(options.job.model.size()),
      owner_squared_norms_(options.job.model.size()) {
  for (size_t id = 0; id < options.topology.groups.size(); ++id) {
    members_.push_back(options.topology.WorkersOf(GroupId(static_cast<int32_t>(id))));
  }
}

absl::Status Collectives::OpenLinks(Transport& transport) {
  const ModelGraph& model = options_.job.model;
  int64_t tied_bytes = 0;
  for (size_t tie = 0; tie < model.ties.size(); ++tie) {
    tied_bytes = std::max(tied_bytes, TiedBytes(model, static_cast<int>(tie)));
  }
  const int64_t copied_bytes = LargestMessage(
      options_, kinds_, GroupKind::kCopies, [&model](LayerRange layers, int64_t) -> int64_t {
        return WeightsOfLayers(model, layers) * SizeOf(DType::kF32);
      });
  // A part of a replica's gradients and of its buffers, its losses, and its part of a validation.
  const int64_t numbers =
      std::max(options_.job.microbatches,
               options_.job.validation_batches * int64_t{EvaluationSums::kNumbers});
  const int64_t replica_bytes = LargestMessage(
      options_, kinds_, GroupKind::kReplicas, [&](LayerRange layers, int64_t replicas) -> int64_t {
        int64_t floats = LayOutBuffers(model, layers, options_.job.batch).count;
        for (const GradientBucket& bucket : GradientBucketsOfLayers(model, layers)) {
          floats = std::max(floats, bucket.count);
        }
        return std::max(ReplicaChunkBytes(floats, replicas), numbers * kDoubleBytes);
      });
  const int64_t bytes_max =
      std::max<int64_t>({tied_bytes, copied_bytes, replica_bytes, model.size() * kDoubleBytes,
                         static_cast<int64_t>(sizeof(PairMessage))});
  for (WorkerId peer : PeersOf(options_)) {
    const EdgeId out = {EdgeKind::kCollective, options_.worker.value, peer.value};
    const EdgeId in = {EdgeKind::kCollective, peer.value, options_.worker.value};
    Link& link = links_.emplace_back();
    link.peer = peer;
    link.out = out;
    PENSTOCK_ASSIGN_OR_RETURN(link.sender,
                              transport.OpenSender(out, kCollectiveCapacity, bytes_max));
    PENSTOCK_ASSIGN_OR_RETURN(
        link.receiver,
        transport.OpenReceiver(in, kCollectiveCapacity, bytes_max, backend_.host_pool()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Collectives::GroupKind> Collectives::KindOfGroup(const ReduceGroup& group,
                                                                const Topology& topology) {
  if (topology.IsOfReplicas(group)) return GroupKind::kReplicas;
  if (group.operation == ReduceGroup::Operation::kCopy) return GroupKind::kCopies;
  if (IsLocalMean(group, topology)) return GroupKind::kLocalMean;
  if (topology.IsOfTies(group) && group.operation == ReduceGroup::Operation::kSum) {
    return GroupKind::kTied;
  }
  return absl::UnimplementedError(
      absl::StrCat("this worker adds up the gradients of parameters that stages share and of "
                   "replicas of a stage, copies weights, and averages replicas of a model that are "
                   "on it; got another group, of ",
                   group.stages.size(), " stages"));
}

absl::Status Collectives::Reduce(GroupId id, absl::Span<Stage* const> members, int64_t version,
                                 Combine combine, Courier& courier, ActionTimer& timer) {
  Stage& own = **std::find_if(members.begin(), members.end(),
                              [](const Stage* member) { return member != nullptr; });
  switch (kinds_[id.value]) {
    case GroupKind::kTied:
      return ReduceTied(id, members, courier, timer);
    case GroupKind::kReplicas:
      return ReduceReplicas(id, own, combine, courier, timer);
    case GroupKind::kCopies:
      // All stages here that have the group's layers have one Stage.
      return CopyWeights(id, version, own, courier, timer);
    case GroupKind::kLocalMean:
      Stage::Average(members);
      timer.Lap(Lane::kCollective);
      return absl::OkStatus();
  }
  PENSTOCK_CHECK(false);
}

absl::Status Collectives::CopyWeights(GroupId group, int64_t version, Stage& stage,
                                      Courier& courier, ActionTimer& timer) {
  const std::vector<WorkerId>& members = members_[group.value];
  const std::vector<StageId>& stages = options_.topology.groups[group.value].stages;
  const auto updated = std::find_if(stages.begin(), stages.end(), [this](StageId each) {
    return options_.topology[each].updates;
  });
  const WorkerId from = options_.topology.worker(*updated);
  if (stage.trained_count() == 0) {  // there is nothing to send
    if (from != options_.worker) PENSTOCK_RETURN_IF_ERROR(stage.AdoptWeights(version, nullptr));
  } else if (from == options_.worker) {
    if (members.size() > 1) PENSTOCK_RETURN_IF_ERROR(SendWeights(members, stage, courier));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor weights,
                              ReceiveFloats(LinkTo(from), {stage.trained_count()}, courier, timer));
    PENSTOCK_RETURN_IF_ERROR(stage.AdoptWeights(version, weights.data<float>()));
  }
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

// The weights are copied before they are sent, because they change while the transport may still read them.
absl::Status Collectives::SendWeights(const std::vector<WorkerId>& members, Stage& stage,
                                      Courier& courier) {
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor copy,
                            AcquireTensor(backend_.pool(), DType::kF32, {stage.trained_count()}));
  stage.CopyWeights(copy.data<float>());
  for (const WorkerId member : members) {
    if (member == options_.worker) continue;
    PENSTOCK_RETURN_IF_ERROR(SendFloats(LinkTo(member), copy, courier));
  }
  return absl::OkStatus();
}

absl::Status Collectives::CombineNorms(absl::Span<double> norms, Courier& courier,
                                       ActionTimer& timer) {
  const auto packed = [this](WorkerId worker) {
    return absl::MakeSpan(packed_norms_).first(LayersOf(worker));
  };
  const auto bytes = [this](WorkerId worker) { return LayersOf(worker) * kDoubleBytes; };
  CopyNorms(options_.worker, norms, packed(options_.worker), /*pack=*/true);
  // There and back a worker may update nothing, and then has nothing to say.
  for (Link& link : links_) {
    if (bytes(options_.worker) == 0) break;
    PENSTOCK_RETURN_IF_ERROR(
        SendBytes(link, packed_norms_.data(), bytes(options_.worker), courier));
  }
  for (Link& link : links_) {
    if (bytes(link.peer) == 0) continue;
    PENSTOCK_RETURN_IF_ERROR(
        ReceiveBytes(link, packed_norms_.data(), bytes(link.peer), courier, timer));
    CopyNorms(link.peer, norms, packed(link.peer), /*pack=*/false);
  }
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

absl::Status Collectives::Share(WorkerId from, double& number, Courier& courier,
                                ActionTimer& timer) {
  if (from != options_.worker) {
    return ReceiveBytes(LinkTo(from), &number, kDoubleBytes, courier, timer);
  }
  for (Link& link : links_) {
    PENSTOCK_RETURN_IF_ERROR(SendBytes(link, &number, kDoubleBytes, courier));
  }
  return absl::OkStatus();
}

// Between `norms`, by layer of the model, and `packed`, by layer of the worker.
void Collectives::CopyNorms(WorkerId worker, absl::Span<double> norms, absl::Span<double> packed,
                            bool pack) {
  double* next = packed.data();
  for (StageId stage : options_.topology.StagesOf(worker)) {
    // Those of all pipelines have the same layers.
    if (!options_.topology.IsInNorm(stage, 0)) continue;
    const LayerRange& layers = options_.layers[stage.value];
    for (int layer = layers.first; layer < layers.end(); ++layer, ++next) {
      if (pack) {
        *next = norms[layer];
      } else {
        norms[layer] = *next;
      }
    }
  }
}

Collectives::Link& Collectives::LinkTo(WorkerId peer) {
  const auto link = std::find_if(links_.begin(), links_.end(),
                                 [&](const Link& candidate) { return candidate.peer == peer; });
  PENSTOCK_CHECK(link != links_.end());
  return *link;
}

int64_t Collectives::LayersOf(WorkerId worker) const {
  int64_t layers = 0;
  for (StageId stage : options_.topology.StagesOf(worker)) {
    if (options_.topology.IsInNorm(stage, 0)) layers += options_.layers[stage.value].count;
  }
  return layers;
}

absl::Time Collectives::Deadline() const { return clock_.WallTime() + options_.receive_timeout; }

absl::Status Collectives::Blame(const Link& link, const absl::Status& status) {
  failed_peer_ = link.peer;
  return status;
}

absl::Status Collectives::SendBytes(Link& link, const void* data, int64_t size_bytes,
                                    Courier& courier) {
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor tensor, AcquireTensor(backend_.host_pool(), DType::kI32,
                                                               {size_bytes / kWordBytes}));
  std::memcpy(tensor.data<void>(), data, size_bytes);
  const absl::Status sent = courier.SendFromHost(*link.sender, link.sent++, tensor, Deadline());
  return sent.ok() || !courier.peer_failed() ? sent : Blame(link, sent);
}

absl::Status Collectives::ReceiveBytes(Link& link, void* data, int64_t size_bytes, Courier& courier,
                                       ActionTimer& timer) {
  const absl::StatusOr<Tensor> tensor = Timed(link, timer, [&] {
    return courier.ReceiveToHost(
        *link.receiver, {link.received++, DType::kI32, {size_bytes / kWordBytes}}, Deadline());
  });
  if (!tensor.ok()) return Blame(link, tensor.status());
  std::memcpy(data, tensor->data<void>(), size_bytes);
  return absl::OkStatus();
}

int64_t Collectives::bytes_sent() const {
  int64_t bytes = 0;
  for (const Link& link : links_) bytes += link.sender->bytes_sent() + link.summed_bytes.value();
  return bytes;
}

std::vector<EdgePath> Collectives::paths() const {
  std::vector<EdgePath> paths;
  for (const Link& link : links_) {
    // Only a device with groups has sums; its name is a constant.
    paths.push_back({link.out, link.sums.value() > 0 ? std::string(backend_.groups()->name())
                                                     : link.sender->path()});
  }
  return paths;
}

int64_t Collectives::messages_sent() const {
  int64_t messages = 0;
  for (const Link& link : links_) messages += link.sender->messages_sent() + link.sums.value();
  return messages;
}

}  // namespace penstock
