// Collectives: what the replicas of a stage reduce together (the contract is in collectives.h).
//
// An array, the gradients most often, is cut into as many parts as there are replicas, and each replica adds up one of
// them: it gets that part from all others, adds them in the order of the replicas, and sends the sum back. So a replica
// of r sends and receives (r - 1) / r of the array twice, as little as any all-reduce can, in two exchanges
// and not the 2 (r - 1) of a ring, and every element is added up in one order whatever its part.
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
  absl::StatusOr<Courier::Received> received = Timed(link, timer, [&] {
    return courier.Receive(*link.receiver, {link.received++, DType::kF32, shape}, Deadline());
  });
  if (received.ok()) return std::move(received->tensor);
  return courier.peer_failed() ? Blame(link, received.status()) : received.status();
}

absl::Status Collectives::ReduceReplicas(const ReduceGroup& group, Stage& own, Combine combine,
                                         Courier& courier, ActionTimer& timer) {
  const Tensor gradients = own.AccumulatedGradients();
  if (combine.weight.has_value()) {
    backend_.Scale(gradients.data<float>(), *combine.weight, own.gradient_count());
  }
  // With weights of their own the sum is the mean.
  const bool is_mean =
      combine.operation == ReduceGroup::Operation::kMean && !combine.weight.has_value();
  return AddUpReplicas(group, gradients, is_mean, courier, timer);
}

absl::Status Collectives::AddUpReplicas(const ReduceGroup& group, const Tensor& own, bool is_mean,
                                        Courier& courier, ActionTimer& timer) {
  PENSTOCK_RETURN_IF_ERROR(SendChunks(group, own, courier));
  PENSTOCK_RETURN_IF_ERROR(AddChunks(group, own, is_mean, courier, timer));
  PENSTOCK_RETURN_IF_ERROR(ShareSum(group, own, courier, timer));
  timer.Lap(Lane::kCollective);
  return absl::OkStatus();
}

absl::Status Collectives::CombineBuffers(const ReduceGroup& group, Stage& own, Courier& courier,
                                         ActionTimer& timer) {
  const auto replicas = static_cast<int64_t>(group.stages.size());
  own.BeginBufferSum(RankIn(group), replicas);
  PENSTOCK_RETURN_IF_ERROR(AddUpReplicas(group, own.Buffers(), false, courier, timer));
  own.EndBufferSum(replicas);
  return absl::OkStatus();
}

// Copies are sent: the sums that come back are written where these parts are, while the transport may still
// read. Each begins with the replica after it, so that not all send to one at a time.
absl::Status Collectives::SendChunks(const ReduceGroup& group, const Tensor& own,
                                     Courier& courier) {
  const auto replicas = static_cast<int64_t>(group.stages.size());
  const int64_t rank = RankIn(group);
  for (int64_t i = 1; i < replicas; ++i) {
    const int64_t to = (rank + i) % replicas;
    const ReplicaChunk chunk = ReplicaChunkOf(own.shape.elements(), replicas, to);
    if (chunk.count == 0) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor copy, CopyOf(ChunkAt(own, chunk), {chunk.count}));
    PENSTOCK_RETURN_IF_ERROR(SendFloats(LinkTo(WorkerOf(group, to)), copy, courier));
  }
  return absl::OkStatus();
}

absl::Status Collectives::AddChunks(const ReduceGroup& group, const Tensor& own, bool is_mean,
                                    Courier& courier, ActionTimer& timer) {
  const auto replicas = static_cast<int64_t>(group.stages.size());
  const int64_t rank = RankIn(group);
  const ReplicaChunk chunk = ReplicaChunkOf(own.shape.elements(), replicas, rank);
  if (chunk.count == 0) return absl::OkStatus();
  float* const sum = ChunkAt(own, chunk);
  Tensor before;  // the sum of the replicas before this one
  for (int64_t from = 0; from < replicas; ++from) {
    if (from == rank) {
      if (rank > 0) backend_.AddInto(sum, before.data<float>(), chunk.count);
      before = Tensor();
      continue;
    }
    PENSTOCK_ASSIGN_OR_RETURN(
        Tensor part, ReceiveFloats(LinkTo(WorkerOf(group, from)), {chunk.count}, courier, timer));
    if (from > rank) {
      backend_.AddInto(sum, part.data<float>(), chunk.count);
    } else if (from == 0) {
      before = std::move(part);
    } else {
      backend_.AddInto(before.data<float>(), part.data<float>(), chunk.count);
    }
  }
  if (is_mean) backend_.Scale(sum, MeanFactor(replicas), chunk.count);
  return absl::OkStatus();
}

absl::Status Collectives::ShareSum(const ReduceGroup& group, const Tensor& own, Courier& courier,
                                   ActionTimer& timer) {
  const auto replicas = static_cast<int64_t>(group.stages.size());
  const int64_t rank = RankIn(group);
  const auto chunk_of = [&](int64_t of) {
    return ReplicaChunkOf(own.shape.elements(), replicas, of);
  };
  if (const ReplicaChunk chunk = chunk_of(rank); chunk.count > 0) {
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor sum, CopyOf(ChunkAt(own, chunk), {chunk.count}));
    for (int64_t i = 1; i < replicas; ++i) {
      Link& link = LinkTo(WorkerOf(group, (rank + i) % replicas));
      PENSTOCK_RETURN_IF_ERROR(SendFloats(link, sum, courier));
    }
  }
  for (int64_t from = 0; from < replicas; ++from) {
    const ReplicaChunk chunk = chunk_of(from);
    if (from == rank || chunk.count == 0) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const Tensor sum, ReceiveFloats(LinkTo(WorkerOf(group, from)),
                                                              {chunk.count}, courier, timer));
    backend_.CopyOnDevice(ChunkAt(own, chunk), sum.data<void>(), sum.size_bytes());
  }
  return absl::OkStatus();
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
