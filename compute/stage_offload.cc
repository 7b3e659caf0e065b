// A stage's stashes on their way to the store and back.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "compute/stage.h"

namespace penstock {

absl::StatusOr<int64_t> Stage::Offload(MicrobatchId microbatch) {
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot,
                            FindAt(microbatch, InFlight::Where::kDevice, "offload"));
  if (slot->backward_input_done || slot->kept_input || offload_store_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("offload of microbatch %d, %s", microbatch.value,
                        slot->backward_input_done ? "whose backward has begun"
                        : slot->kept_input        ? "which keeps no more than its input"
                                                  : "but the stage has no store for stashes"));
  }
  // Several slots may be views of one block.
  slot->block_of.assign(slot->slots.size(), -1);
  int64_t bytes = 0;
  for (size_t s = 0; s < slot->slots.size(); ++s) {
    const Buffer& buffer = slot->slots[s].buffer;
    if (!buffer) continue;
    const auto same =
        std::find_if(slot->blocks.begin(), slot->blocks.end(),
                     [&buffer](const Buffer& block) { return block.data() == buffer.data(); });
    slot->block_of[s] = static_cast<int>(same - slot->blocks.begin());
    if (same != slot->blocks.end()) continue;
    slot->blocks.push_back(buffer);
    bytes += buffer.size_bytes();
  }
  PENSTOCK_ASSIGN_OR_RETURN(slot->stash, offload_store_->StartOut(slot->blocks));
  slot->where = InFlight::Where::kLeaving;
  return bytes;
}

absl::StatusOr<CopySpan> Stage::Evict(MicrobatchId microbatch) {
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot,
                            FindAt(microbatch, InFlight::Where::kLeaving, "eviction"));
  PENSTOCK_ASSIGN_OR_RETURN(const CopySpan span, offload_store_->FinishOut(slot->stash));
  slot->blocks.clear();
  for (Tensor& tensor : slot->slots) tensor.buffer = Buffer();
  slot->where = InFlight::Where::kStore;
  return span;
}

absl::Status Stage::Prefetch(MicrobatchId microbatch) {
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot,
                            FindAt(microbatch, InFlight::Where::kStore, "prefetch"));
  PENSTOCK_RETURN_IF_ERROR(offload_store_->StartIn(slot->stash));
  slot->where = InFlight::Where::kComing;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<CopySpan>> Stage::FinishPrefetch(MicrobatchId microbatch) {
  PENSTOCK_ASSIGN_OR_RETURN(InFlight * slot, Find(microbatch));
  if (slot->where != InFlight::Where::kComing) return std::nullopt;
  PENSTOCK_ASSIGN_OR_RETURN(const CopySpan span,
                            offload_store_->FinishIn(slot->stash, slot->blocks));
  for (size_t s = 0; s < slot->slots.size(); ++s) {
    if (slot->block_of[s] >= 0) slot->slots[s].buffer = slot->blocks[slot->block_of[s]];
  }
  slot->blocks.clear();
  slot->where = InFlight::Where::kDevice;
  return span;
}

}  // namespace penstock
