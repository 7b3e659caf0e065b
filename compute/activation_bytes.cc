#include "compute/activation_bytes.h"

#include <algorithm>

#include "compute/buffer_pool.h"
#include "compute/tensor.h"

namespace penstock {
namespace {

// Counts blocks as a pool does.
class Ledger {
 public:
  void Take(int64_t size_bytes) {
    bytes_.left += BlockBytes(size_bytes);
    bytes_.most = std::max(bytes_.most, bytes_.left);
  }
  void Give(int64_t size_bytes) { bytes_.left -= BlockBytes(size_bytes); }
  PassBytes bytes() const { return bytes_; }

 private:
  // Nothing is taken for nothing.
  static int64_t BlockBytes(int64_t size_bytes) {
    return size_bytes == 0 ? 0 : BufferPool::BlockBytes(size_bytes);
  }

  PassBytes bytes_;
};

PassBytes Forward(const ActivationShape& s) {
  Ledger ledger;
  if (s.has_embedding) ledger.Take(s.tokens);
  if (s.has_head) ledger.Take(s.tokens);
  for (size_t layer = 0; layer < s.needs.size(); ++layer) {
    ledger.Take(s.needs[layer].stash_bytes);
    ledger.Take(s.needs[layer].kept_bytes);
    const bool is_head = s.has_head && layer + 1 == s.needs.size();
    ledger.Take(is_head ? SizeOf(DType::kF32) : s.boundary);
    if (!s.recomputes) continue;
    ledger.Give(s.needs[layer].stash_bytes);
    ledger.Give(s.needs[layer].kept_bytes);
    if (layer > 0) ledger.Give(s.boundary);  // the layer's input
  }
  if (s.has_head) ledger.Give(s.tokens);
  return ledger.bytes();
}

// All that a forward takes, but for the input, which is there, and the output, which is not needed.
PassBytes Recompute(const ActivationShape& s) {
  Ledger ledger;
  if (!s.recomputes) return ledger.bytes();
  if (s.has_head) ledger.Take(s.tokens);
  for (size_t layer = 0; layer < s.needs.size(); ++layer) {
    ledger.Take(s.needs[layer].stash_bytes);
    ledger.Take(s.needs[layer].kept_bytes);
    const bool is_head = s.has_head && layer + 1 == s.needs.size();
    ledger.Take(is_head ? SizeOf(DType::kF32) : s.boundary);
  }
  ledger.Give(s.has_head ? SizeOf(DType::kF32) : s.boundary);
  if (s.has_head) ledger.Give(s.tokens);
  return ledger.bytes();
}

int64_t InputBytes(const ActivationShape& s, size_t layer) {
  return s.has_embedding && layer == 0 ? s.tokens : s.boundary;
}

bool HasGradOutput(const ActivationShape& s, size_t layer) {
  return !(s.has_head && layer + 1 == s.needs.size());
}

PassBytes BackwardInput(const ActivationShape& s) {
  Ledger ledger;
  for (size_t layer = s.needs.size(); layer-- > 0;) {
    const TapeNeeds& needs = s.needs[layer];
    const bool is_last = layer + 1 == s.needs.size();
    ledger.Take(needs.weight_stash_bytes);
    if (!(s.has_embedding && layer == 0)) ledger.Take(s.boundary);
    ledger.Give(needs.stash_bytes);
    if (!needs.input_for_weight) ledger.Give(InputBytes(s, layer));
    // The caller holds the stage's own until the pass is done.
    if (!is_last && !needs.grad_output_for_weight) ledger.Give(s.boundary);
  }
  const size_t last = s.needs.size() - 1;
  if (HasGradOutput(s, last) && !s.needs[last].grad_output_for_weight) ledger.Give(s.boundary);
  if (s.has_head) ledger.Give(SizeOf(DType::kF32));  // the loss
  return ledger.bytes();
}

PassBytes BackwardWeight(const ActivationShape& s) {
  Ledger ledger;
  for (size_t layer = s.needs.size(); layer-- > 0;) {
    const TapeNeeds& needs = s.needs[layer];
    ledger.Give(needs.kept_bytes);
    ledger.Give(needs.weight_stash_bytes);
    if (needs.input_for_weight) ledger.Give(InputBytes(s, layer));
    if (needs.grad_output_for_weight && HasGradOutput(s, layer)) ledger.Give(s.boundary);
  }
  return ledger.bytes();
}

}  // namespace

ActivationBytes ActivationBytesOf(const ActivationShape& shape) {
  return {.boundary = BufferPool::BlockBytes(shape.boundary),
          .forward = Forward(shape),
          .recompute = Recompute(shape),
          .backward_input = BackwardInput(shape),
          .backward_weight = BackwardWeight(shape)};
}

}  // namespace penstock
