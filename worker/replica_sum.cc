// Collectives: what the replicas of a stage reduce together (the contract is in collectives.h).
//
// An array, the gradients most often, goes bucket by bucket (compute/gradient_buckets.h). Each is cut into as many parts
// as there are replicas, and each replica adds up one of them: it gets that part from all others, adds them in the order
// of the replicas, and sends the sum back. So a replica of r sends and receives (r - 1) / r of the array twice, as little
// as any all-reduce can, in two exchanges of a bucket and not the 2 (r - 1) of a ring, and every element is added up in
// one order whatever its part and its bucket.
//
// All replicas go through the same messages in the same order, so that each knows what comes next on every edge. In turn
// k they
//
//   send the parts of bucket k, add those of k - 1 up, send the sum of k - 1, take the sums of k - 2.
//
// The parts of the next bucket are thus on their way while a sum waits for the last replica, and no link stands still
// for it. Between a message and the one that it waits for on the same edge, which the peer has to take, are two others:
// with room for three on an edge, the peer takes each in an earlier phase than ours, and nobody waits for ever.
//
// From BEGIN_REDUCE to REDUCE nobody waits at all: the executor calls GoOn between its other work, and what is not there
// yet stays for the next time. The order of messages does not depend on when that is.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "job/run/message_bytes.h"
#include "worker/acquire.h"
#include "worker/collectives.h"
#include "worker/update_rule.h"

namespace penstock {
namespace {

int64_t TurnsOf(int64_t count, int64_t replicas, int64_t rank) {
  return std::max<int64_t>(0, (count - rank + replicas - 1) / replicas);
}

// The part of a bucket that a replica adds up, from the beginning of the array.
ReplicaChunk ChunkOf(const GradientBucket& bucket, int64_t replicas, int64_t rank) {
  ReplicaChunk chunk = ReplicaChunkOf(bucket.count, replicas, rank);
  chunk.first += bucket.first;
  return chunk;
}

float* ChunkAt(const Tensor& array, const ReplicaChunk& chunk) {
  return array.data<float>() + chunk.first;
}

}  // namespace

int64_t Collectives::RankIn(const ReduceGroup& group) const {
  const auto own = std::find_if(group.stages.begin(), group.stages.end(), [&](StageId stage) {
    return options_.topology.worker(stage) == options_.worker;
  });
  PENSTOCK_CHECK(own != group.stages.end());
  return own - group.stages.begin();
}

absl::StatusOr<Tensor> Collectives::CopyOf(const float* array, const Shape& shape) {
  PENSTOCK_ASSIGN_OR_RETURN(Tensor copy, AcquireTensor(backend_.pool(), DType::kF32, shape));
  backend_.CopyOnDevice(copy.data<void>(), array, copy.size_bytes());
  return copy;
}

absl::Status Collectives::SendFloats(Link& link, const Tensor& tensor, Courier& courier) {
  const absl::Status sent = courier.Send(*link.sender, link.sent++, tensor, Deadline());
  return sent.ok() || !courier.peer_failed() ? sent : Blame(link, sent);
}

absl::StatusOr<Tensor> Collectives::ReceiveFloats(Link& link, const Shape& shape, Courier& courier,
                                                  ActionTimer& timer) {
  return Timed(link, timer, [&] { return TakeFloats(link, shape, courier); });
}

absl::StatusOr<Tensor> Collectives::TakeFloats(Link& link, const Shape& shape, Courier& courier) {
  absl::StatusOr<Courier::Received> received =
      courier.Receive(*link.receiver, {link.received++, DType::kF32, shape}, Deadline());
  if (received.ok()) return std::move(received->tensor);
  return courier.peer_failed() ? Blame(link, received.status()) : received.status();
}

void Collectives::BeginReduce(GroupId id, Stage& own) {
  begun_.push_back({.group = id, .own = own.AccumulatedGradients(), .buckets = buckets_[id.value]});
}

absl::Status Collectives::LayerDone(GroupId id, int layer, Combine combine, Courier& courier) {
  const auto sum = std::find_if(begun_.begin(), begun_.end(),
                                [id](const ReplicaSum& each) { return each.group == id; });
  PENSTOCK_CHECK(sum != begun_.end());
  AddWhole(*sum, layer, combine);
  return GoOn(courier);
}

void Collectives::AddWhole(ReplicaSum& sum, int layer, Combine combine) {
  sum.is_mean = IsMean(combine);
  const auto buckets = static_cast<int64_t>(sum.buckets.size());
  for (; sum.whole < buckets && sum.buckets[sum.whole].layer >= layer; ++sum.whole) {
    const GradientBucket& bucket = sum.buckets[sum.whole];
    if (!combine.weight.has_value() || bucket.count == 0) continue;
    backend_.Scale(sum.own.data<float>() + bucket.first, *combine.weight, bucket.count);
  }
}

absl::Status Collectives::GoOn(Courier& courier) {
  for (ReplicaSum& sum : begun_) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool done, Advance(sum, courier, nullptr));
    // The messages of the next one come after its, and after the losses that its REDUCE exchanges.
    const StageId stage = options_.topology.groups[sum.group.value].stages.front();
    if (!done || options_.topology[stage].last) break;
  }
  return absl::OkStatus();
}

absl::Status Collectives::ReduceReplicas(GroupId id, Stage& own, Combine combine, Courier& courier,
                                         ActionTimer& timer) {
  const bool early = has_begun();
  if (!early) BeginReduce(id, own);
  ReplicaSum& sum = begun_.front();
  PENSTOCK_CHECK(sum.group == id);  // the machine has refused another order
  AddWhole(sum, /*layer=*/0, combine);
  PENSTOCK_RETURN_IF_ERROR(Advance(sum, courier, &timer).status());
  timer.Lap(Lane::kCollective);
  if (early) timer.Beside(Lane::kTransfer, sum.first_ns, sum.last_ns);
  begun_.pop_front();
  return absl::OkStatus();
}

absl::Status Collectives::CombineBuffers(GroupId id, Stage& own, Courier& courier,
                                         ActionTimer& timer) {
  const ReduceGroup& group = options_.topology.groups[id.value];
  const auto replicas = static_cast<int64_t>(group.stages.size());
  own.BeginBufferSum(RankIn(group), replicas);
  const GradientBucket all = {.first = 0, .count = own.buffer_count()};
  ReplicaSum sum = {
      .group = id, .own = own.Buffers(), .buckets = absl::MakeConstSpan(&all, 1), .whole = 1};
  PENSTOCK_RETURN_IF_ERROR(Advance(sum, courier, &timer).status());
  timer.Lap(Lane::kCollective);
  own.EndBufferSum(replicas);
  return absl::OkStatus();
}

absl::StatusOr<bool> Collectives::Advance(ReplicaSum& sum, Courier& courier, ActionTimer* timer) {
  using Phase = ReplicaSum::Phase;
  constexpr int64_t kBehind[] = {0, 1, 1, 2};  // by phase: its bucket is this many behind the turn
  const auto buckets = static_cast<int64_t>(sum.buckets.size());
  while (sum.turn < buckets + 2) {
    const int64_t bucket = sum.turn - kBehind[static_cast<int>(sum.phase)];
    if (bucket >= 0 && bucket < buckets) {
      if (sum.phase == Phase::kSendParts && bucket >= sum.whole) return false;
      PENSTOCK_ASSIGN_OR_RETURN(const bool done,
                                Exchange(sum, sum.buckets[bucket], courier, timer));
      if (!done) return false;
    }
    sum.message = 0;
    if (sum.phase == Phase::kTakeSums) {
      sum.phase = Phase::kSendParts;
      ++sum.turn;
    } else {
      sum.phase = static_cast<Phase>(static_cast<int>(sum.phase) + 1);
    }
  }
  if (sum.last_ns == 0) sum.last_ns = clock_.MonotonicNs();
  return true;
}

absl::StatusOr<bool> Collectives::Exchange(ReplicaSum& sum, const GradientBucket& bucket,
                                           Courier& courier, ActionTimer* timer) {
  switch (sum.phase) {
    case ReplicaSum::Phase::kSendParts:
      return SendParts(sum, bucket, courier, timer != nullptr);
    case ReplicaSum::Phase::kAddParts:
      return AddParts(sum, bucket, courier, timer);
    case ReplicaSum::Phase::kSendSum:
      return SendSum(sum, bucket, courier, timer != nullptr);
    case ReplicaSum::Phase::kTakeSums:
      return TakeSums(sum, bucket, courier, timer);
  }
  PENSTOCK_CHECK(false);
}

// Copies are sent: the sums that come back are written where these parts are, while the transport may still
// read. Each begins with the replica after it, so that not all send to one at a time.
absl::StatusOr<bool> Collectives::SendParts(ReplicaSum& sum, const GradientBucket& bucket,
                                            Courier& courier, bool waits) {
  const ReduceGroup& group = options_.topology.groups[sum.group.value];
  const auto replicas = static_cast<int64_t>(group.stages.size());
  const int64_t rank = RankIn(group);
  if (sum.first_ns == 0) sum.first_ns = clock_.MonotonicNs();
  for (; sum.message < replicas - 1; ++sum.message) {
    const int64_t to = (rank + 1 + sum.message) % replicas;
    const ReplicaChunk chunk = ChunkOf(bucket, replicas, to);
    if (chunk.count == 0) continue;
    Link& link = LinkTo(WorkerOf(group, to));
    if (!waits && !link.sender->Ready()) return false;
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor copy, CopyOf(ChunkAt(sum.own, chunk), {chunk.count}));
    PENSTOCK_RETURN_IF_ERROR(SendFloats(link, copy, courier));
  }
  return true;
}

absl::StatusOr<bool> Collectives::AddParts(ReplicaSum& sum, const GradientBucket& bucket,
                                           Courier& courier, ActionTimer* timer) {
  const ReduceGroup& group = options_.topology.groups[sum.group.value];
  const auto replicas = static_cast<int64_t>(group.stages.size());
  const int64_t rank = RankIn(group);
  const ReplicaChunk chunk = ChunkOf(bucket, replicas, rank);
  if (chunk.count == 0) return true;
  float* const own = ChunkAt(sum.own, chunk);
  for (; sum.message < replicas; ++sum.message) {
    const int64_t from = sum.message;
    if (from == rank) {
      if (rank > 0) backend_.AddInto(own, sum.before.data<float>(), chunk.count);
      sum.before = Tensor();
      continue;
    }
    Link& link = LinkTo(WorkerOf(group, from));
    if (timer == nullptr && !link.receiver->Ready()) return false;
    PENSTOCK_ASSIGN_OR_RETURN(
        Tensor part, timer == nullptr ? TakeFloats(link, {chunk.count}, courier)
                                      : ReceiveFloats(link, {chunk.count}, courier, *timer));
    if (from > rank) {
      backend_.AddInto(own, part.data<float>(), chunk.count);
    } else if (from == 0) {
      sum.before = std::move(part);
    } else {
      backend_.AddInto(sum.before.data<float>(), part.data<float>(), chunk.count);
    }
  }
  if (sum.is_mean) backend_.Scale(own, MeanFactor(replicas), chunk.count);
  return true;
}

absl::StatusOr<bool> Collectives::SendSum(ReplicaSum& sum, const GradientBucket& bucket,
                                          Courier& courier, bool waits) {
  const ReduceGroup& group = options_.topology.groups[sum.group.value];
  const auto replicas = static_cast<int64_t>(group.stages.size());
  const int64_t rank = RankIn(group);
  const ReplicaChunk chunk = ChunkOf(bucket, replicas, rank);
  if (chunk.count == 0) return true;
  for (; sum.message < replicas - 1; ++sum.message) {
    Link& link = LinkTo(WorkerOf(group, (rank + 1 + sum.message) % replicas));
    if (!waits && !link.sender->Ready()) return false;
    if (!sum.sum) {
      PENSTOCK_ASSIGN_OR_RETURN(sum.sum, CopyOf(ChunkAt(sum.own, chunk), {chunk.count}));
    }
    PENSTOCK_RETURN_IF_ERROR(SendFloats(link, sum.sum, courier));
  }
  sum.sum = Tensor();
  return true;
}

absl::StatusOr<bool> Collectives::TakeSums(ReplicaSum& sum, const GradientBucket& bucket,
                                           Courier& courier, ActionTimer* timer) {
  const ReduceGroup& group = options_.topology.groups[sum.group.value];
  const auto replicas = static_cast<int64_t>(group.stages.size());
  const int64_t rank = RankIn(group);
  for (; sum.message < replicas; ++sum.message) {
    const ReplicaChunk chunk = ChunkOf(bucket, replicas, sum.message);
    if (sum.message == rank || chunk.count == 0) continue;
    Link& link = LinkTo(WorkerOf(group, sum.message));
    if (timer == nullptr && !link.receiver->Ready()) return false;
    PENSTOCK_ASSIGN_OR_RETURN(
        const Tensor part, timer == nullptr ? TakeFloats(link, {chunk.count}, courier)
                                            : ReceiveFloats(link, {chunk.count}, courier, *timer));
    backend_.CopyOnDevice(ChunkAt(sum.own, chunk), part.data<void>(), part.size_bytes());
  }
  return true;
}

absl::Status Collectives::GatherLosses(const ReduceGroup& group, int64_t count, int64_t width,
                                       absl::Span<const double> own, std::vector<double>& all,
                                       Courier& courier, ActionTimer& timer) {
  const auto replicas = static_cast<int64_t>(group.stages.size());
  const int64_t rank = RankIn(group);
  all.clear();
  PENSTOCK_CHECK(static_cast<int64_t>(own.size()) == width * TurnsOf(count, replicas, rank));
  const auto bytes_of = [](absl::Span<const double> losses) {
    return static_cast<int64_t>(losses.size() * sizeof(double));
  };
  if (rank > 0) {
    if (own.empty()) return absl::OkStatus();
    return SendBytes(LinkTo(WorkerOf(group, 0)), own.data(), bytes_of(own), courier);
  }
  all.resize(count * width);
  for (int64_t from = 0; from < replicas; ++from) {
    const int64_t turns = TurnsOf(count, replicas, from);
    if (turns == 0) continue;
    if (from == 0) {
      packed_losses_.assign(own.begin(), own.end());
    } else {
      packed_losses_.resize(turns * width);
      PENSTOCK_RETURN_IF_ERROR(ReceiveBytes(LinkTo(WorkerOf(group, from)), packed_losses_.data(),
                                            bytes_of(packed_losses_), courier, timer));
    }
    for (int64_t turn = 0; turn < turns; ++turn) {
      std::copy_n(packed_losses_.begin() + turn * width, width,
                  all.begin() + (from + turn * replicas) * width);
    }
  }
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

}  // namespace penstock
