#include "tokenizer/byte_trie.h"

#include "base/check.h"

namespace penstock {

ByteTrie::ByteTrie(const std::vector<std::pair<absl::string_view, int32_t>>& texts)
    : from_root_(256, kNone), edges_(64), mask_(63), values_(1, -1) {
  for (const auto& [text, value] : texts) {
    PENSTOCK_CHECK(!text.empty() && value >= 0);
    Node node = kRoot;
    for (const char letter : text) {
      const auto byte = static_cast<uint8_t>(letter);
      Node next = Step(node, byte);
      if (next == kNone) {
        next = static_cast<Node>(values_.size());
        values_.push_back(-1);
        if (node == kRoot) {
          from_root_[byte] = next;
        } else {
          if (++edges_used_ * 2 > edges_.size()) Grow();
          Insert(uint64_t{node} << 8 | byte, next);
        }
      }
      node = next;
    }
    values_[node] = value;
  }
}

void ByteTrie::Insert(uint64_t key, Node to) {
  size_t at = Home(key);
  while (edges_[at].key != kNoKey) at = (at + 1) & mask_;
  edges_[at] = {key, to};
}

void ByteTrie::Grow() {
  std::vector<Edge> old(edges_.size() * 2);
  old.swap(edges_);
  mask_ = edges_.size() - 1;
  for (const Edge& edge : old) {
    if (edge.key != kNoKey) Insert(edge.key, edge.to);
  }
}

}  // namespace penstock
