#include "job/run/message_bytes.h"

#include <algorithm>

#include "compute/parameter_arena.h"
#include "compute/tensor.h"
#include "model/bundle.h"

namespace penstock {
namespace {

constexpr int64_t kFloatsOfRegister = 16;
// A double's words in a tensor of floats, which are copied and never computed with.
constexpr int64_t kLossFloats = sizeof(double) / sizeof(float);

int64_t MessageBytesOf(const ResolvedJob& job, const Bundle& bundle) {
  const DType crossing = CrossingType(job.precision);
  const int64_t compressed = CompressedBytes(job.compression, crossing, bundle.elements);
  return compressed > 0 ? compressed : bundle.elements * SizeOf(crossing);
}

}  // namespace

int64_t ActivationBytesAt(const ResolvedJob& job, int layer) {
  return ActivationsAt(job.model, layer, job.microbatch_samples).elements *
         SizeOf(CrossingType(job.precision));
}

int64_t GradientBytesAt(const ResolvedJob& job, int layer) {
  return GradientsAt(job.model, layer, job.microbatch_samples).elements *
         SizeOf(CrossingType(job.precision));
}

int64_t ActivationMessageBytesAt(const ResolvedJob& job, int layer) {
  return MessageBytesOf(job, ActivationsAt(job.model, layer, job.microbatch_samples));
}

int64_t GradientMessageBytesAt(const ResolvedJob& job, int layer) {
  return MessageBytesOf(job, GradientsAt(job.model, layer, job.microbatch_samples));
}

int64_t SumFloats(int64_t gradients, bool with_loss) {
  return std::max<int64_t>(1, gradients + (with_loss ? kLossFloats : 0));
}

ReplicaChunk ReplicaChunkOf(int64_t count, int64_t replicas, int64_t rank) {
  const int64_t registers = (count + kFloatsOfRegister - 1) / kFloatsOfRegister;
  const auto begin = [&](int64_t of) {
    return std::min(count, registers * of / replicas * kFloatsOfRegister);
  };
  return {begin(rank), begin(rank + 1) - begin(rank)};
}

int64_t ReplicaChunkBytes(int64_t count, int64_t replicas) {
  int64_t largest = 0;
  for (int64_t rank = 0; rank < replicas; ++rank) {
    largest = std::max(largest, ReplicaChunkOf(count, replicas, rank).count);
  }
  return largest * SizeOf(DType::kF32);
}

int64_t WeightsOfLayers(const ModelGraph& model, LayerRange layers) {
  return ParameterArena(model, layers).trained_count();
}

int64_t StreamedFloats(const ModelGraph& model, LayerRange layers) {
  return std::max<int64_t>(1, ParameterArena(model, layers).weight_count());
}

int64_t GradientsOfLayers(const ModelGraph& model, LayerRange layers) {
  return ParameterArena(model, layers).gradient_count();
}

std::vector<GradientBucket> GradientBucketsOfLayers(const ModelGraph& model, LayerRange layers) {
  return GradientBucketsOf(ParameterArena(model, layers), layers);
}

}  // namespace penstock
