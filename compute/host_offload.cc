#include <utility>

#include "base/status.h"
#include "compute/offload_store.h"

namespace penstock {

absl::StatusOr<int64_t> HostOffload::StartOut(absl::Span<const Buffer> blocks) {
  Stash stash;
  for (const Buffer& block : blocks) {
    const Tensor bytes = {block, DType::kU8, {block.size_bytes()}};
    PENSTOCK_ASSIGN_OR_RETURN(stash.outgoing.emplace_back(), backend_.StartToHost(bytes));
  }
  return stashes_.Add(std::move(stash));
}

absl::StatusOr<CopySpan> HostOffload::FinishOut(int64_t number) {
  Stash& stash = stashes_[number];
  for (Outgoing& outgoing : stash.outgoing) {
    PENSTOCK_ASSIGN_OR_RETURN(stash.host.emplace_back(),
                              backend_.FinishToHost(std::exchange(outgoing, Outgoing())));
  }
  stash.outgoing.clear();
  return CopySpan();
}

absl::Status HostOffload::StartIn(int64_t number) {
  Stash& stash = stashes_[number];
  for (Tensor& host : stash.host) {
    PENSTOCK_ASSIGN_OR_RETURN(stash.incoming.emplace_back(), backend_.StartToDevice(host));
    host = Tensor();
  }
  stash.host.clear();
  return absl::OkStatus();
}

absl::StatusOr<CopySpan> HostOffload::FinishIn(int64_t number, std::vector<Buffer>& blocks) {
  blocks.clear();
  for (Incoming& incoming : stashes_[number].incoming) {
    PENSTOCK_ASSIGN_OR_RETURN(Tensor tensor,
                              backend_.FinishToDevice(std::exchange(incoming, Incoming())));
    blocks.push_back(std::move(tensor.buffer));
  }
  stashes_.Remove(number);
  return CopySpan();
}

}  // namespace penstock
