// PassGraphTable: which passes of a stage were recorded, for PassGraphs of any device.
//
// A pass is queued call by call when its key is first seen, recorded when it comes again, and replayed from
// then on; so what never comes again costs no recording, and libraries have loaded what they need before a
// recording begins. For each pass of each layer the table keeps a few keys (PassGraphs::kKeptMax).
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compute/pass_graphs.h"

namespace penstock {

// `Recording` is movable, gives back what it holds when it goes, and is false while it holds nothing.
template <typename Recording>
class PassGraphTable {
 public:
  struct Entry {
    PassGraphs::Key key;
    Recording recording = {};
    int64_t last_used = 0;
  };

  // The entry of `key`, which may take the place of another. Valid until the next call.
  Entry& Find(const PassGraphs::Key& key, bool& seen_before) {
    std::vector<Entry>& entries = EntriesOf(key);
    auto entry = std::find_if(entries.begin(), entries.end(),
                              [&](const Entry& known) { return known.key == key; });
    seen_before = entry != entries.end();
    if (!seen_before) {
      if (entries.size() < PassGraphs::kKeptMax) {
        entries.push_back({});
        entry = entries.end() - 1;
      } else {
        entry = std::min_element(
            entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.last_used < b.last_used; });
        *entry = Entry();
      }
      entry->key = key;
    }
    entry->last_used = uses_++;
    return *entry;
  }

  int64_t recordings() const {
    int64_t count = 0;
    for (const std::vector<Entry>& entries : entries_) {
      for (const Entry& entry : entries) count += entry.recording ? 1 : 0;
    }
    return count;
  }

  void Clear() { entries_.clear(); }

 private:
  std::vector<Entry>& EntriesOf(const PassGraphs::Key& key) {
    const auto at = static_cast<size_t>(key.node) * kPasses + static_cast<size_t>(key.pass);
    if (at >= entries_.size()) entries_.resize(at + 1);
    return entries_[at];
  }

  std::vector<std::vector<Entry>> entries_;  // by layer and pass
  int64_t uses_ = 0;
};

}  // namespace penstock
