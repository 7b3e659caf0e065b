#include "compute/host_stash.h"

#include <utility>

#include "base/status.h"

namespace penstock {
namespace {

// An array as the copies of a back-end take it; empty for an empty one.
Tensor TensorOf(const Buffer& buffer, DType dtype) {
  return buffer ? Tensor{buffer, dtype, {buffer.size_bytes() / SizeOf(dtype)}} : Tensor();
}

}  // namespace

absl::Status HostStash::StartLeaving(const WeightArrays& arrays, HostCopy& copy) {
  if (copy.state != HostCopy::State::kNone) return absl::OkStatus();
  const Tensor tensors[] = {TensorOf(arrays.f32, DType::kF32), TensorOf(arrays.bf16, DType::kBf16)};
  for (size_t i = 0; i < copy.outgoing.size(); ++i) {
    if (!tensors[i]) continue;
    PENSTOCK_ASSIGN_OR_RETURN(copy.outgoing[i], backend_->StartToHost(tensors[i]));
  }
  copy.state = HostCopy::State::kLeaving;
  return absl::OkStatus();
}

absl::Status HostStash::FinishLeaving(WeightArrays& arrays, HostCopy& copy) {
  if (copy.state != HostCopy::State::kLeaving) return absl::OkStatus();
  for (size_t i = 0; i < copy.outgoing.size(); ++i) {
    if (!copy.outgoing[i].host) continue;
    PENSTOCK_ASSIGN_OR_RETURN(copy.host[i],
                              backend_->FinishToHost(std::exchange(copy.outgoing[i], Outgoing())));
  }
  Leave(arrays, copy);
  return absl::OkStatus();
}

void HostStash::Leave(WeightArrays& arrays, HostCopy& copy) {
  arrays = WeightArrays();
  copy.state = HostCopy::State::kAway;
}

absl::Status HostStash::StartComing(HostCopy& copy) {
  if (copy.state != HostCopy::State::kAway) return absl::OkStatus();
  for (size_t i = 0; i < copy.incoming.size(); ++i) {
    if (!copy.host[i]) continue;
    PENSTOCK_ASSIGN_OR_RETURN(copy.incoming[i], backend_->StartToDevice(copy.host[i]));
  }
  copy.state = HostCopy::State::kComing;
  return absl::OkStatus();
}

absl::Status HostStash::FinishComing(WeightArrays& arrays, HostCopy& copy) {
  if (copy.state != HostCopy::State::kComing) return absl::OkStatus();
  Buffer* const to[] = {&arrays.f32, &arrays.bf16};
  for (size_t i = 0; i < copy.incoming.size(); ++i) {
    if (!copy.host[i]) continue;
    PENSTOCK_ASSIGN_OR_RETURN(
        Tensor tensor, backend_->FinishToDevice(std::exchange(copy.incoming[i], Incoming())));
    *to[i] = std::move(tensor.buffer);
  }
  copy.state = HostCopy::State::kBoth;
  return absl::OkStatus();
}

}  // namespace penstock
