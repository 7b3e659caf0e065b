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
#include "worker/limits.h"

namespace penstock {
namespace {

constexpr int64_t kDoubleBytes = sizeof(double);
constexpr int64_t kWordBytes = sizeof(int32_t);
static_assert(sizeof(PairMessage) % kWordBytes == 0);

// For two workers that both said they would: NCCL takes some seconds.
constexpr absl::Duration kJoinTimeout = absl::Minutes(1);

// Uses of the tied weight in one copy of the model, by the stages that make its updates.
bool IsTied(const ReduceGroup& group, const Topology& topology) {
  const int32_t pipeline = topology[group.stages.front()].pipeline;
  return group.quantity == ReduceGroup::Quantity::kGradient &&
         group.operation == ReduceGroup::Operation::kSum &&
         std::all_of(group.stages.begin(), group.stages.end(), [&](StageId stage) {
           const StageWiring& row = topology[stage];
           return row.pipeline == pipeline && row.updates && (row.part == 0) != row.last;
         });
}

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
  if (options.job.clip.kind == Clip::Kind::kGlobalNorm) {
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
  PENSTOCK_RETURN_IF_ERROR(collectives->OpenLinks(transport));
  return collectives;
}

Collectives::Collectives(const CollectiveOptions& options, Backend& backend, Clock& clock)
    : options_(options), backend_(backend), clock_(clock), packed_norms_(options.job.model.size()) {
  for (size_t id = 0; id < options.topology.groups.size(); ++id) {
    members_.push_back(options.topology.WorkersOf(GroupId(static_cast<int32_t>(id))));
  }
}

absl::Status Collectives::OpenLinks(Transport& transport) {
  const ModelGraph& model = options_.job.model;
  const int64_t tied_bytes = TiedBytes(model);
  const int64_t copied_bytes = LargestMessage(
      options_, kinds_, GroupKind::kCopies, [&model](LayerRange layers, int64_t) -> int64_t {
        return WeightsOfLayers(model, layers) * SizeOf(DType::kF32);
      });
  // A part of a replica's gradients and of its buffers, and its losses.
  const int64_t losses = std::max(options_.job.microbatches, options_.job.validation_batches);
  const int64_t replica_bytes = LargestMessage(
      options_, kinds_, GroupKind::kReplicas, [&](LayerRange layers, int64_t replicas) -> int64_t {
        const int64_t floats = std::max(GradientsOfLayers(model, layers),
                                        LayOutBuffers(model, layers, options_.job.batch).count);
        return std::max(ReplicaChunkBytes(floats, replicas), losses * kDoubleBytes);
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
  if (IsTied(group, topology)) {
    const bool replicas = topology.form == Topology::Form::kReplicas;
    return replicas ? GroupKind::kTiedReplicas : GroupKind::kTied;
  }
  return absl::UnimplementedError(
      absl::StrCat("this worker reduces the gradient of a tied weight, between the first and the "
                   "last stage, and the gradients of replicas of a stage, copies weights, and "
                   "averages replicas of a model that are on it; got another group, of ",
                   group.stages.size(), " stages"));
}

absl::Status Collectives::Reduce(GroupId id, absl::Span<Stage* const> members, int64_t version,
                                 Courier& courier, ActionTimer& timer) {
  const ReduceGroup& group = options_.topology.groups[id.value];
  Stage& own = **std::find_if(members.begin(), members.end(),
                              [](const Stage* member) { return member != nullptr; });
  switch (kinds_[id.value]) {
    case GroupKind::kTied:
      return ReduceTied(group, members, courier, timer);
    case GroupKind::kTiedReplicas:
      return ReduceTiedReplicas(group, own, courier, timer);
    case GroupKind::kReplicas:
      return AddUpReplicas(group, own.AccumulatedGradients(),
                           group.operation == ReduceGroup::Operation::kMean, courier, timer);
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

absl::Status Collectives::ReduceTied(const ReduceGroup& group, absl::Span<Stage* const> members,
                                     Courier& courier, ActionTimer& timer) {
  const size_t last = options_.topology[group.stages.front()].last ? 0 : 1;
  Stage* const head = members[last];
  Stage* const embedding = members[1 - last];
  if (embedding != nullptr && head != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(ReduceLocally(*embedding, *head));
    timer.Lap(Lane::kCollective);
    return absl::OkStatus();
  }
  Stage& own = embedding != nullptr ? *embedding : *head;
  const StageId other = group.stages[members.front() != nullptr ? 1 : 0];
  Link& link = LinkTo(options_.topology.worker(other));
  PENSTOCK_RETURN_IF_ERROR(ReduceWithPeer(own, link, courier, timer));
  if (options_.job.clip.kind == Clip::Kind::kLayerNorm) {
    PENSTOCK_RETURN_IF_ERROR(ShareEmbeddingNorm(own, link, courier, timer));
  }
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

absl::Status Collectives::ReduceLocally(Stage& embedding, Stage& head) {
  const Tensor embedding_part = embedding.TiedGradient();
  const Tensor head_part = head.TiedGradient();
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor copy,
                            CopyOf(embedding_part.data<float>(), embedding_part.shape));
  embedding.SetTiedGradient(head_part, embedding_part);
  head.SetTiedGradient(head_part, copy);
  if (options_.job.clip.kind == Clip::Kind::kLayerNorm) {
    std::vector<double> norms(options_.layers.front().count);
    PENSTOCK_RETURN_IF_ERROR(embedding.LayerSquaredNorms(absl::MakeSpan(norms)));
    embedding_squared_norm_ = norms.front();
  }
  return absl::OkStatus();
}

absl::Status Collectives::ReduceWithPeer(Stage& own, Link& link, Courier& courier,
                                         ActionTimer& timer) {
  if (!link.agreed) {
    PENSTOCK_RETURN_IF_ERROR(Agree(own.is_last() ? 1 : 0, link, courier, timer));
  }
  return link.group == nullptr ? ReduceOverEdges(own, link, courier, timer)
                               : ReduceInGroup(own, link, courier, timer);
}

absl::Status Collectives::Agree(int rank, Link& link, Courier& courier, ActionTimer& timer) {
  DeviceGroups* groups = backend_.groups();
  PENSTOCK_ASSIGN_OR_RETURN(
      DevicePair pair,
      JoinPair(groups, rank, kJoinTimeout,
               [&](const PairMessage& own) -> absl::StatusOr<PairMessage> {
                 PENSTOCK_RETURN_IF_ERROR(SendBytes(link, &own, sizeof(own), courier));
                 PairMessage other;
                 PENSTOCK_RETURN_IF_ERROR(ReceiveBytes(link, &other, sizeof(other), timer));
                 return other;
               }));
  link.agreed = true;
  link.group = std::move(pair.group);
  if (groups == nullptr || !options_.notice) return absl::OkStatus();
  const std::string what =
      absl::StrCat("the tied gradient is summed with worker ", options_.names[link.peer.value]);
  options_.notice(link.group != nullptr
                      ? absl::StrCat(what, " by ", groups->name())
                      : absl::StrCat(what, " over ", link.sender->path(), ": ", pair.why_not));
  return absl::OkStatus();
}

// Both meet before their devices begin, so that no device waits for a worker that is gone.
absl::Status Collectives::ReduceInGroup(Stage& own, Link& link, Courier& courier,
                                        ActionTimer& timer) {
  const int32_t here = 1;
  int32_t there = 0;
  PENSTOCK_RETURN_IF_ERROR(SendBytes(link, &here, sizeof(here), courier));
  PENSTOCK_RETURN_IF_ERROR(ReceiveBytes(link, &there, sizeof(there), timer));
  const Tensor part = own.TiedGradient();
  const absl::Status summed = link.group->AllReduceSum(part.data<float>(), part.shape.elements());
  if (!summed.ok()) return absl::IsUnavailable(summed) ? Blame(link, summed) : summed;
  link.sums.Add(1);
  link.summed_bytes.Add(part.size_bytes());
  return absl::OkStatus();
}

// The gradient is copied before it is sent, because it changes while the transport may still read it.
absl::Status Collectives::ReduceOverEdges(Stage& own, Link& link, Courier& courier,
                                          ActionTimer& timer) {
  const Tensor part = own.TiedGradient();
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor copy, CopyOf(part.data<float>(), part.shape));
  PENSTOCK_RETURN_IF_ERROR(SendFloats(link, copy, courier));
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor other, ReceiveFloats(link, part.shape, courier, timer));
  own.is_last() ? own.SetTiedGradient(part, other) : own.SetTiedGradient(other, part);
  return absl::OkStatus();
}

absl::Status Collectives::ShareEmbeddingNorm(Stage& own, Link& link, Courier& courier,
                                             ActionTimer& timer) {
  if (!own.is_first()) {
    return ReceiveBytes(link, &embedding_squared_norm_, kDoubleBytes, timer);
  }
  const absl::Span<double> norms =
      absl::MakeSpan(packed_norms_).first(options_.layers.front().count);
  PENSTOCK_RETURN_IF_ERROR(own.LayerSquaredNorms(norms));
  embedding_squared_norm_ = norms.front();
  return SendBytes(link, norms.data(), kDoubleBytes, courier);
}

absl::Status Collectives::CopyWeights(GroupId group, int64_t version, Stage& stage,
                                      Courier& courier, ActionTimer& timer) {
  const std::vector<WorkerId>& members = members_[group.value];
  const std::vector<StageId>& stages = options_.topology.groups[group.value].stages;
  const auto updated = std::find_if(stages.begin(), stages.end(), [this](StageId each) {
    return options_.topology[each].updates;
  });
  const WorkerId from = options_.topology.worker(*updated);
  if (from == options_.worker) {
    if (members.size() > 1) PENSTOCK_RETURN_IF_ERROR(SendWeights(members, stage, courier));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor weights,
                              ReceiveFloats(LinkTo(from), {stage.weight_count()}, courier, timer));
    PENSTOCK_RETURN_IF_ERROR(stage.AdoptWeights(version, weights.data<float>()));
  }
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

// The weights are copied before they are sent, because they change while the transport may still read them.
absl::Status Collectives::SendWeights(const std::vector<WorkerId>& members, Stage& stage,
                                      Courier& courier) {
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor copy,
                            AcquireTensor(backend_.pool(), DType::kF32, {stage.weight_count()}));
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
    PENSTOCK_RETURN_IF_ERROR(ReceiveBytes(link, packed_norms_.data(), bytes(link.peer), timer));
    CopyNorms(link.peer, norms, packed(link.peer), /*pack=*/false);
  }
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

// Between `norms`, by layer of the model, and `packed`, by layer of the worker.
void Collectives::CopyNorms(WorkerId worker, absl::Span<double> norms, absl::Span<double> packed,
                            bool pack) {
  double* next = packed.data();
  for (StageId stage : options_.topology.StagesOf(worker)) {
    if (!options_.topology[stage].updates) continue;
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
    if (options_.topology[stage].updates) layers += options_.layers[stage.value].count;
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

absl::Status Collectives::ReceiveBytes(Link& link, void* data, int64_t size_bytes,
                                       ActionTimer& timer) {
  const absl::StatusOr<Tensor> tensor = Timed(link, timer, [&] {
    return link.receiver->Receive({link.received++, DType::kI32, {size_bytes / kWordBytes}},
                                  Deadline());
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
