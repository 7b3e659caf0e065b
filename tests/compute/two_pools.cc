#include "tests/compute/two_pools.h"

#include <cstring>
#include <utility>

namespace penstock {
namespace {

Tensor Poisoned(BufferPool& pool, const Tensor& like) {
  Tensor tensor = pool.AcquireTensor(like.dtype, like.shape);
  std::memset(tensor.data<void>(), 0xFF, tensor.size_bytes());
  return tensor;
}

}  // namespace

absl::StatusOr<Outgoing> TwoPools::StartToHost(const Tensor& tensor) {
  Outgoing outgoing;
  outgoing.device = tensor;
  outgoing.host = Poisoned(host_pool_, tensor);
  return outgoing;
}

absl::StatusOr<Tensor> TwoPools::FinishToHost(Outgoing outgoing) {
  ++copies_to_host;
  std::memcpy(outgoing.host.data<void>(), outgoing.device.data<void>(), outgoing.host.size_bytes());
  return std::move(outgoing.host);
}

absl::StatusOr<Incoming> TwoPools::StartToDevice(const Tensor& host) {
  Incoming incoming;
  incoming.host = host;
  incoming.device = Poisoned(pool(), host);
  return incoming;
}

absl::StatusOr<Tensor> TwoPools::FinishToDevice(Incoming incoming) {
  ++copies_to_device;
  std::memcpy(incoming.device.data<void>(), incoming.host.data<void>(),
              incoming.device.size_bytes());
  return std::move(incoming.device);
}

absl::StatusOr<Tensor> TwoPools::ToDevice(const Tensor& host) {
  absl::StatusOr<Incoming> incoming = StartToDevice(host);
  if (!incoming.ok()) return incoming.status();
  return FinishToDevice(*std::move(incoming));
}

}  // namespace penstock
