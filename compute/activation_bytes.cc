#include "compute/activation_bytes.h"

#include <algorithm>
#include <vector>

#include "compute/buffer_pool.h"

namespace penstock {
namespace {

// Counts blocks as a pool does.
int64_t BlockBytes(int64_t size_bytes) {
  return size_bytes == 0 ? 0 : BufferPool::BlockBytes(size_bytes);
}

// Follows the blocks of one microbatch from pass to pass.
class Ledger {
 public:
  explicit Ledger(const PassPlan& plan) : plan_(plan), block_of_(plan.slots.size(), -1) {}

  // A tensor that is there before the pass.
  void Put(int slot) {
    if (slot < 0) return;
    Open(slot);
    now_ += blocks_.back().bytes;
  }
  void Take(int slot) {
    Put(slot);
    pass_.most = std::max(pass_.most, now_ - before_);
  }
  // What the caller holds beside the stage, until Drop.
  void Hold(int slot) { ++blocks_[block_of_[slot]].holders; }
  void Drop(int slot) { Release(block_of_[slot]); }
  void RememberLoss() { loss_ = returned_; }
  // F returned the loss, whose holder drops it.
  void DropLoss() { Release(loss_); }

  // Of the blocks that are there, but for what the last pass returned.
  int64_t Kept() const {
    int64_t bytes = 0;
    for (size_t block = 0; block < blocks_.size(); ++block) {
      if (blocks_[block].holders > 0 && static_cast<int>(block) != returned_) {
        bytes += blocks_[block].bytes;
      }
    }
    return bytes;
  }

  void Begin() {
    before_ = now_;
    returned_ = -1;
    pass_ = {};
  }
  // `result`: what the pass returns; -1: nothing.
  void Walk(const std::vector<PassStep>& steps, int result) {
    for (const PassStep& step : steps) {
      if (step.kind == PassStep::Kind::kTake) {
        Take(step.slot);
      } else if (step.kind == PassStep::Kind::kShare) {
        block_of_[step.slot] = block_of_[step.from];
        ++blocks_[block_of_[step.slot]].holders;
      } else if (step.kind == PassStep::Kind::kGive && step.slot == result) {
        returned_ = block_of_[step.slot];  // goes on with the caller
      } else if (step.kind == PassStep::Kind::kGive) {
        Release(block_of_[step.slot]);
      }
    }
    if (result < 0) return;
    const bool keeps_slot = returned_ < 0;
    const int block = block_of_[result];
    if (keeps_slot || blocks_[block].holders > 1) ReturnAndKeep(block, keeps_slot);
  }
  PassBytes End() {
    pass_.left = now_ - before_;
    return pass_;
  }

 private:
  struct Block {
    int64_t bytes = 0;
    int holders = 0;
  };

  void Open(int slot) {
    block_of_[slot] = static_cast<int>(blocks_.size());
    blocks_.push_back({BlockBytes(plan_.slots[slot].size_bytes()), 1});
  }
  // The stage needs what it returns for a later pass, in this slot or another, so the caller's counts as another block,
  // which its receiver gives back as a whole.
  void ReturnAndKeep(int block, bool keeps_slot) {
    if (!keeps_slot) --blocks_[block].holders;
    returned_ = static_cast<int>(blocks_.size());
    blocks_.push_back({blocks_[block].bytes, 1});
    now_ += blocks_.back().bytes;
  }
  void Release(int block) {
    if (--blocks_[block].holders == 0) now_ -= blocks_[block].bytes;
  }

  const PassPlan& plan_;
  std::vector<int> block_of_;  // by slot
  std::vector<Block> blocks_;
  int64_t now_ = 0;
  int64_t before_ = 0;
  int returned_ = -1;  // block
  int loss_ = -1;      // block
  PassBytes pass_;
};

int64_t BytesOf(const PassPlan& plan, int slot) {
  return slot < 0 ? 0 : BlockBytes(plan.slots[slot].size_bytes());
}

}  // namespace

ActivationBytes ActivationBytesOf(const PassPlan& plan, bool recomputes, bool is_last) {
  ActivationBytes bytes;
  bytes.input = BytesOf(plan, plan.input);
  bytes.output = is_last ? 0 : BytesOf(plan, plan.output);
  bytes.grad_input = BytesOf(plan, plan.grad_input);
  bytes.grad_output = BytesOf(plan, plan.grad_output);
  for (const int slot : plan.port_slots) bytes.ports += BytesOf(plan, slot);

  Ledger ledger(plan);
  const auto forward = [&](const std::vector<PassStep>& steps, int result) {
    ledger.Begin();
    for (const int slot : plan.port_slots) {
      ledger.Take(slot);
      ledger.Hold(slot);
    }
    ledger.Walk(steps, result);
    for (const int slot : plan.port_slots) ledger.Drop(slot);
    return ledger.End();
  };
  ledger.Put(plan.input);
  bytes.forward = forward(recomputes ? plan.forward_only : plan.forward, plan.output);
  ledger.RememberLoss();
  if (!recomputes) bytes.stash = ledger.Kept();
  if (recomputes) bytes.recompute = forward(plan.recompute, -1);
  ledger.Put(plan.grad_output);
  ledger.Begin();
  ledger.Walk(plan.backward_input, plan.grad_input);
  if (is_last) ledger.DropLoss();  // which is read after I
  bytes.backward_input = ledger.End();
  ledger.Begin();
  ledger.Walk(plan.backward_weight, -1);
  bytes.backward_weight = ledger.End();
  return bytes;
}

}  // namespace penstock
