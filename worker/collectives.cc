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
      packed_norms_(options.job.chain.size()) {}

absl::Status Collectives::OpenLinks(Transport& transport) {
  const Chain& chain = options_.job.chain;
  const int64_t tied_bytes =
      chain.tied() ? chain.vocabulary * chain.width * SizeOf(DType::kF32) : 0;
  const int64_t bytes_max = std::max(tied_bytes, chain.size() * kDoubleBytes);
  for (WorkerId peer : PeersOf(options_)) {
    const EdgeId out = {EdgeKind::kCollective, options_.worker.value, peer.value};
    const EdgeId in = {EdgeKind::kCollective, peer.value, options_.worker.value};
    Link link = {.peer = peer, .out = out};
    PENSTOCK_ASSIGN_OR_RETURN(link.sender,
                              transport.OpenSender(out, kCollectiveCapacity, bytes_max));
    PENSTOCK_ASSIGN_OR_RETURN(
        link.receiver,
        transport.OpenReceiver(in, kCollectiveCapacity, bytes_max, backend_.host_pool()));
    links_.push_back(std::move(link));
  }
  return absl::OkStatus();
}

absl::Status Collectives::ReduceTied(Stage* embedding, Stage* head, Courier& courier,
                                     ActionTimer& timer) {
  PENSTOCK_CHECK(embedding != nullptr || head != nullptr);
  if (embedding != nullptr && head != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(ReduceLocally(*embedding, *head));
    timer.Lap(Lane::kCollective);
    return absl::OkStatus();
  }
  Stage& own = embedding != nullptr ? *embedding : *head;
  const StageId other(embedding != nullptr ? options_.topology.stages() - 1 : 0);
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
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor copy, AcquireTensor(backend_.pool(), embedding_part.dtype,
                                                             embedding_part.shape));
  backend_.CopyOnDevice(copy.data<void>(), embedding_part.data<void>(), copy.size_bytes());
  embedding.SetTiedGradient(head_part, embedding_part);
  head.SetTiedGradient(head_part, copy);
  if (options_.job.clip.kind == Clip::Kind::kLayerNorm) {
    std::vector<double> norms(options_.layers.front().count);
    PENSTOCK_RETURN_IF_ERROR(embedding.LayerSquaredNorms(absl::MakeSpan(norms)));
    embedding_squared_norm_ = norms.front();
  }
  return absl::OkStatus();
}

// The gradient is copied before it is sent, because it changes while the transport may still read it.
absl::Status Collectives::ReduceWithPeer(Stage& own, Link& link, Courier& courier,
                                         ActionTimer& timer) {
  const Tensor part = own.TiedGradient();
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor copy,
                            AcquireTensor(backend_.pool(), part.dtype, part.shape));
  backend_.CopyOnDevice(copy.data<void>(), part.data<void>(), copy.size_bytes());
  const absl::Status sent = courier.Send(*link.sender, link.sent++, copy, Deadline());
  if (!sent.ok()) return courier.peer_failed() ? Blame(link, sent) : sent;
  const absl::StatusOr<Courier::Received> other = Timed(link, timer, [&] {
    return courier.Receive(*link.receiver, {link.received++, part.dtype, part.shape}, Deadline());
  });
  if (!other.ok()) return courier.peer_failed() ? Blame(link, other.status()) : other.status();
  if (own.has_head()) {
    own.SetTiedGradient(part, other->tensor);
  } else {
    own.SetTiedGradient(other->tensor, part);
  }
  return absl::OkStatus();
}

absl::Status Collectives::ShareEmbeddingNorm(Stage& own, Link& link, Courier& courier,
                                             ActionTimer& timer) {
  if (!own.has_embedding()) {
    return ReceiveDoubles(link, absl::MakeSpan(&embedding_squared_norm_, 1), timer);
  }
  const absl::Span<double> norms =
      absl::MakeSpan(packed_norms_).first(options_.layers.front().count);
  PENSTOCK_RETURN_IF_ERROR(own.LayerSquaredNorms(norms));
  embedding_squared_norm_ = norms.front();
  return SendDoubles(link, norms.first(1), courier);
}

absl::Status Collectives::CombineNorms(absl::Span<double> norms, Courier& courier,
                                       ActionTimer& timer) {
  const auto packed = [this](WorkerId worker) {
    return absl::MakeSpan(packed_norms_).first(LayersOf(worker));
  };
  CopyNorms(options_.worker, norms, packed(options_.worker), /*pack=*/true);
  for (Link& link : links_) {
    PENSTOCK_RETURN_IF_ERROR(SendDoubles(link, packed(options_.worker), courier));
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

absl::Time Collectives::Deadline() const { return clock_.WallTime() + options_.receive_timeout; }

absl::Status Collectives::Blame(const Link& link, const absl::Status& status) {
  failed_peer_ = link.peer;
  return status;
}

template <typename Receive>
std::invoke_result_t<Receive> Collectives::Timed(Link& link, ActionTimer& timer, Receive receive) {
  timer.Lap(Lane::kCollective);
  const bool waits = !link.receiver->Ready();
  auto received = receive();
  if (waits) timer.Lap(Lane::kWait, Wait::kCollective);
  return received;
}

absl::Status Collectives::SendDoubles(Link& link, absl::Span<const double> values,
                                      Courier& courier) {
  const auto count = static_cast<int64_t>(values.size());
  PENSTOCK_ASSIGN_OR_RETURN(const Tensor tensor, AcquireTensor(backend_.host_pool(), DType::kI32,
                                                               {count * kWordsPerDouble}));
  std::memcpy(tensor.data<void>(), values.data(), count * kDoubleBytes);
  const absl::Status sent = courier.SendFromHost(*link.sender, link.sent++, tensor, Deadline());
  return sent.ok() || !courier.peer_failed() ? sent : Blame(link, sent);
}

absl::Status Collectives::ReceiveDoubles(Link& link, absl::Span<double> values,
                                         ActionTimer& timer) {
  const auto count = static_cast<int64_t>(values.size());
  const absl::StatusOr<Tensor> tensor = Timed(link, timer, [&] {
    return link.receiver->Receive({link.received++, DType::kI32, {count * kWordsPerDouble}},
                                  Deadline());
  });
  if (!tensor.ok()) return Blame(link, tensor.status());
  std::memcpy(values.data(), tensor->data<void>(), count * kDoubleBytes);
  return absl::OkStatus();
}

int64_t Collectives::bytes_sent() const {
  int64_t bytes = 0;
  for (const Link& link : links_) bytes += link.sender->bytes_sent();
  return bytes;
}

std::vector<EdgePath> Collectives::paths() const {
  std::vector<EdgePath> paths;
  for (const Link& link : links_) paths.push_back({link.out, link.sender->path()});
  return paths;
}

int64_t Collectives::messages_sent() const {
  int64_t messages = 0;
  for (const Link& link : links_) messages += link.sender->messages_sent();
  return messages;
}

}  // namespace penstock
