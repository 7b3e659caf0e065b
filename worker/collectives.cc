#include "worker/collectives.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "worker/acquire.h"
#include "worker/limits.h"

namespace penstock {
namespace {

constexpr int64_t kDoubleBytes = sizeof(double);
constexpr int64_t kWordsPerDouble = 2;

// The only group there is: the embedding's stage and the head's.
absl::Status CheckGroup(const ReduceGroup& group, const Topology& topology) {
  const std::vector<StageId> tied = {StageId(0), StageId(topology.stages() - 1)};
  if (group.stages == tied && group.quantity == ReduceGroup::Quantity::kGradient &&
      group.operation == ReduceGroup::Operation::kSum) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat("this worker reduces the gradient of a tied weight only, between the first and "
                   "the last stage; got a group of ",
                   group.stages.size(), " stages"));
}

// The workers that `options.worker` exchanges messages with.
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

}  // namespace

absl::StatusOr<std::unique_ptr<Collectives>> Collectives::Open(const CollectiveOptions& options,
                                                               Transport& transport,
                                                               Backend& backend, Clock& clock) {
  for (const ReduceGroup& group : options.topology.groups) {
    PENSTOCK_RETURN_IF_ERROR(CheckGroup(group, options.topology));
  }
  auto collectives = std::unique_ptr<Collectives>(new Collectives(options, backend, clock));
  PENSTOCK_RETURN_IF_ERROR(collectives->OpenLinks(transport));
  return collectives;
}

Collectives::Collectives(const CollectiveOptions& options, Backend& backend, Clock& clock)
    : options_(options),
      backend_(backend),
      clock_(clock),
      host_pool_(HostMemory()),
      packed_norms_(options.job.chain.size()) {}

absl::Status Collectives::OpenLinks(Transport& transport) {
  const Chain& chain = options_.job.chain;
  const int64_t tied_bytes =
      chain.tied() ? chain.vocabulary * chain.width * SizeOf(DType::kF32) : 0;
  const int64_t bytes_max = std::max(tied_bytes, chain.size() * kDoubleBytes);
  for (WorkerId peer : PeersOf(options_)) {
    const EdgeId out = {EdgeKind::kCollective, options_.worker.value, peer.value};
    const EdgeId in = {EdgeKind::kCollective, peer.value, options_.worker.value};
    Link link = {.peer = peer};
    PENSTOCK_ASSIGN_OR_RETURN(link.sender,
                              transport.OpenSender(out, kCollectiveCapacity, bytes_max));
    PENSTOCK_ASSIGN_OR_RETURN(
        link.receiver, transport.OpenReceiver(in, kCollectiveCapacity, bytes_max, host_pool_));
    links_.push_back(std::move(link));
  }
  return absl::OkStatus();
}

absl::Status Collectives::ReduceTied(Stage* embedding, Stage* head, ActionTimer& timer) {
  PENSTOCK_CHECK(embedding != nullptr || head != nullptr);
  if (embedding != nullptr && head != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(ReduceLocally(*embedding, *head));
    timer.Lap(Lane::kCollective);
    return absl::OkStatus();
  }
  Stage& own = embedding != nullptr ? *embedding : *head;
  const StageId other(embedding != nullptr ? options_.topology.stages() - 1 : 0);
  Link& link = LinkTo(options_.topology.worker(other));
  PENSTOCK_RETURN_IF_ERROR(ReduceWithPeer(own, link, timer));
  if (options_.job.clip.kind == Clip::Kind::kLayerNorm) {
    PENSTOCK_RETURN_IF_ERROR(ShareEmbeddingNorm(own, link, timer));
  }
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

absl::Status Collectives::ReduceLocally(Stage& embedding, Stage& head) {
  const Tensor embedding_part = embedding.TiedGradient();
  const Tensor head_part = head.TiedGradient();
  PENSTOCK_ASSIGN_OR_RETURN(Tensor host,
                            AcquireTensor(host_pool_, embedding_part.dtype, embedding_part.shape));
  PENSTOCK_ASSIGN_OR_RETURN(
      Tensor copy, AcquireTensor(backend_.pool(), embedding_part.dtype, embedding_part.shape));
  backend_.CopyToHost(host.data<void>(), embedding_part.data<void>(), host.size_bytes());
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  backend_.CopyToDevice(copy.data<void>(), host.data<void>(), copy.size_bytes());
  embedding.SetTiedGradient(head_part, embedding_part);
  head.SetTiedGradient(head_part, copy);
  if (options_.job.clip.kind == Clip::Kind::kLayerNorm) {
    std::vector<double> norms(options_.layers.front().count);
    PENSTOCK_RETURN_IF_ERROR(embedding.LayerSquaredNorms(absl::MakeSpan(norms)));
    embedding_squared_norm_ = norms.front();
  }
  return absl::OkStatus();
}

// The gradient is copied before it is sent, because it changes while the network may still read it.
absl::Status Collectives::ReduceWithPeer(Stage& own, Link& link, ActionTimer& timer) {
  const Tensor part = own.TiedGradient();
  PENSTOCK_ASSIGN_OR_RETURN(Tensor copy, AcquireTensor(host_pool_, part.dtype, part.shape));
  backend_.CopyToHost(copy.data<void>(), part.data<void>(), copy.size_bytes());
  PENSTOCK_RETURN_IF_ERROR(backend_.Synchronize());
  PENSTOCK_RETURN_IF_ERROR(Send(link, copy));
  PENSTOCK_ASSIGN_OR_RETURN(Tensor received, Receive(link, part.dtype, part.shape, timer));
  PENSTOCK_ASSIGN_OR_RETURN(Tensor other, AcquireTensor(backend_.pool(), part.dtype, part.shape));
  backend_.CopyToDevice(other.data<void>(), received.data<void>(), other.size_bytes());
  if (own.has_head()) {
    own.SetTiedGradient(part, other);
  } else {
    own.SetTiedGradient(other, part);
  }
  return absl::OkStatus();
}

absl::Status Collectives::ShareEmbeddingNorm(Stage& own, Link& link, ActionTimer& timer) {
  if (!own.has_embedding()) {
    return ReceiveDoubles(link, absl::MakeSpan(&embedding_squared_norm_, 1), timer);
  }
  const absl::Span<double> norms =
      absl::MakeSpan(packed_norms_).first(options_.layers.front().count);
  PENSTOCK_RETURN_IF_ERROR(own.LayerSquaredNorms(norms));
  embedding_squared_norm_ = norms.front();
  return SendDoubles(link, norms.first(1));
}

absl::Status Collectives::CombineNorms(absl::Span<double> norms, ActionTimer& timer) {
  const auto packed = [this](WorkerId worker) {
    return absl::MakeSpan(packed_norms_).first(LayersOf(worker));
  };
  CopyNorms(options_.worker, norms, packed(options_.worker), /*pack=*/true);
  for (Link& link : links_) {
    PENSTOCK_RETURN_IF_ERROR(SendDoubles(link, packed(options_.worker)));
  }
  for (Link& link : links_) {
    PENSTOCK_RETURN_IF_ERROR(ReceiveDoubles(link, packed(link.peer), timer));
    CopyNorms(link.peer, norms, packed(link.peer), /*pack=*/false);
  }
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

// Between `norms`, by layer of the chain, and `packed`, by layer of the worker.
void Collectives::CopyNorms(WorkerId worker, absl::Span<double> norms, absl::Span<double> packed,
                            bool pack) {
  double* next = packed.data();
  for (StageId stage : options_.topology.StagesOf(worker)) {
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
    layers += options_.layers[stage.value].count;
  }
  return layers;
}

absl::Status Collectives::Send(Link& link, const Tensor& tensor) {
  const absl::Status status =
      link.sender->Send(link.sent++, tensor, clock_.WallTime() + options_.receive_timeout);
  if (!status.ok()) failed_peer_ = link.peer;
  return status;
}

absl::StatusOr<Tensor> Collectives::Receive(Link& link, DType dtype, const Shape& shape,
                                            ActionTimer& timer) {
  timer.Lap(Lane::kCollective);
  const bool waits = !link.receiver->Ready();
  absl::StatusOr<Tensor> tensor = link.receiver->Receive(
      {link.received++, dtype, shape}, clock_.WallTime() + options_.receive_timeout);
  if (waits) timer.Lap(Lane::kWait, Wait::kCollective);
  if (!tensor.ok()) failed_peer_ = link.peer;
  return tensor;
}

absl::Status Collectives::SendDoubles(Link& link, absl::Span<const double> values) {
  const auto count = static_cast<int64_t>(values.size());
  PENSTOCK_ASSIGN_OR_RETURN(Tensor tensor,
                            AcquireTensor(host_pool_, DType::kI32, {count * kWordsPerDouble}));
  std::memcpy(tensor.data<void>(), values.data(), count * kDoubleBytes);
  return Send(link, tensor);
}

absl::Status Collectives::ReceiveDoubles(Link& link, absl::Span<double> values,
                                         ActionTimer& timer) {
  const auto count = static_cast<int64_t>(values.size());
  PENSTOCK_ASSIGN_OR_RETURN(Tensor tensor,
                            Receive(link, DType::kI32, {count * kWordsPerDouble}, timer));
  std::memcpy(values.data(), tensor.data<void>(), count * kDoubleBytes);
  return absl::OkStatus();
}

int64_t Collectives::bytes_sent() const {
  int64_t bytes = 0;
  for (const Link& link : links_) bytes += link.sender->bytes_sent();
  return bytes;
}

int64_t Collectives::messages_sent() const {
  int64_t messages = 0;
  for (const Link& link : links_) messages += link.sender->messages_sent();
  return messages;
}

}  // namespace penstock
