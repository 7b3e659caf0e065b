// ByteTrie: which of many texts does this text begin with?
//
// A value that is filled once; then const methods may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace penstock {

class ByteTrie {
 public:
  using Node = uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = UINT32_MAX;

  // `texts` with a value each, which is not negative. Of equal texts the last counts. REQUIRES: no text is empty.
  explicit ByteTrie(const std::vector<std::pair<absl::string_view, int32_t>>& texts);
  ByteTrie() : ByteTrie(std::vector<std::pair<absl::string_view, int32_t>>()) {}

  // The node one byte further, or kNone.
  Node Step(Node node, uint8_t byte) const {
    if (node == kRoot) return from_root_[byte];
    const uint64_t key = uint64_t{node} << 8 | byte;
    for (size_t at = Home(key);; at = (at + 1) & mask_) {
      if (edges_[at].key == key) return edges_[at].to;
      if (edges_[at].key == kNoKey) return kNone;
    }
  }
  // The value of the text that ends at a node, or -1.
  int32_t ValueOf(Node node) const { return values_[node]; }

  struct Found {
    int32_t value = -1;  // none
    size_t bytes = 0;
  };
  // The longest of the texts that `text` begins with.
  Found Longest(absl::string_view text) const {
    Found found;
    Node node = kRoot;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Step(node, static_cast<uint8_t>(text[i]));
      if (node == kNone) break;
      if (values_[node] >= 0) found = {values_[node], i + 1};
    }
    return found;
  }

 private:
  static constexpr uint64_t kNoKey = UINT64_MAX;
  struct Edge {
    uint64_t key = kNoKey;
    Node to = kNone;
  };
  size_t Home(uint64_t key) const { return (key * 0x9E3779B97F4A7C15) >> 20 & mask_; }
  void Insert(uint64_t key, Node to);
  void Grow();

  std::vector<Node> from_root_;
  std::vector<Edge> edges_;
  size_t mask_ = 0;
  size_t edges_used_ = 0;
  std::vector<int32_t> values_;  // by node
};

}  // namespace penstock
