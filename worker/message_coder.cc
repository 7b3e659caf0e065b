#include "worker/message_coder.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status.h"
#include "model/bundle.h"
#include "worker/acquire.h"

namespace penstock {
namespace {

int64_t BytesOfMessage(const MessageCompression& compression, DType dtype, const Shape& shape) {
  return CompressedBytes(compression, dtype, shape.elements());
}

// Whether the tensors of this kind that a stage makes go to another worker, always to the same stage.
bool LeavesWorker(const Topology& topology, EdgeKind kind, StageId stage) {
  const StageId to = topology.To(kind, stage, /*microbatch=*/0);
  return to.value >= 0 && topology.worker(to) != topology.worker(stage);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MessageCoder>> MessageCoder::Create(
    BufferPool& pool, const MessageCompression& compression, Of of, const ModelGraph& model,
    int layer, int64_t samples, DType dtype) {
  const Bundle bundle = of == Of::kActivations ? ActivationsAt(model, layer, samples)
                                               : GradientsAt(model, layer, samples);
  const int64_t bytes = CompressedBytes(compression, dtype, bundle.elements);
  if (bytes == 0) return nullptr;
  std::vector<Gap> gaps;
  int64_t end = 0;
  const auto add_gap = [&](int64_t next) {
    if (next > end) gaps.push_back({end, next - end});
  };
  for (const Bundle::Part& part : bundle.parts) {
    add_gap(part.offset);
    end = part.offset + samples * model.TypeOf(part.value).elements();
  }
  add_gap(bundle.elements);
  PENSTOCK_ASSIGN_OR_RETURN(Tensor numbers, AcquireTensor(pool, DType::kF32, {bundle.elements}));
  std::fill_n(numbers.data<float>(), bundle.elements, 0.0f);
  return std::unique_ptr<MessageCoder>(
      new MessageCoder(pool, compression, bytes, std::move(gaps), std::move(numbers)));
}

MessageCoder::MessageCoder(BufferPool& pool, const MessageCompression& compression, int64_t bytes,
                           std::vector<Gap> gaps, Tensor numbers)
    : pool_(pool),
      bytes_(bytes),
      gaps_(std::move(gaps)),
      compression_(compression),
      numbers_(std::move(numbers)) {}

absl::StatusOr<Tensor> MessageCoder::Encode(const Tensor& tensor) {
  PENSTOCK_ASSIGN_OR_RETURN(Tensor message, AcquireTensor(pool_, DType::kU8, {bytes_}));
  const auto numbers = absl::MakeSpan(numbers_.data<float>(), numbers_.shape.elements());
  AddNumbers(tensor.dtype, tensor.data<void>(), numbers);
  for (const Gap& gap : gaps_) std::fill_n(numbers.begin() + gap.first, gap.count, 0.0f);
  PENSTOCK_RETURN_IF_ERROR(
      Compress(compression_, numbers, absl::MakeSpan(message.data<std::byte>(), bytes_)));
  return message;
}

absl::Span<float> MessageCoder::left_out() const {
  return absl::MakeSpan(numbers_.data<float>(), numbers_.shape.elements());
}

absl::StatusOr<StageCoders> StageCoders::Make(BufferPool& pool, const ResolvedJob& job,
                                              const Topology& topology, StageId id,
                                              LayerRange layers) {
  StageCoders coders;
  if (!job.compression.any()) return coders;
  const auto make = [&](MessageCoder::Of of, int layer) {
    return MessageCoder::Create(pool, job.compression, of, job.model, layer, job.microbatch_samples,
                                CrossingType(job.precision));
  };
  if (LeavesWorker(topology, EdgeKind::kActivation, id)) {
    PENSTOCK_ASSIGN_OR_RETURN(coders.activations,
                              make(MessageCoder::Of::kActivations, layers.end()));
  }
  if (LeavesWorker(topology, EdgeKind::kGradient, id)) {
    PENSTOCK_ASSIGN_OR_RETURN(coders.gradients, make(MessageCoder::Of::kGradients, layers.first));
  }
  return coders;
}

DType MessageType(const MessageCompression& compression, DType dtype, const Shape& shape) {
  return BytesOfMessage(compression, dtype, shape) > 0 ? DType::kU8 : dtype;
}

Shape MessageShape(const MessageCompression& compression, DType dtype, const Shape& shape) {
  const int64_t bytes = BytesOfMessage(compression, dtype, shape);
  return bytes > 0 ? Shape{bytes} : shape;
}

absl::StatusOr<Tensor> Decode(BufferPool& pool, const MessageCompression& compression,
                              Tensor message, DType dtype, const Shape& shape) {
  if (BytesOfMessage(compression, dtype, shape) == 0) return message;
  PENSTOCK_ASSIGN_OR_RETURN(Tensor tensor, AcquireTensor(pool, dtype, shape));
  PENSTOCK_RETURN_IF_ERROR(Expand(compression,
                                  absl::MakeSpan(message.data<std::byte>(), message.size_bytes()),
                                  dtype, shape.elements(), tensor.data<void>()));
  return tensor;
}

}  // namespace penstock
