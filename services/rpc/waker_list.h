// WakerList: streams that wait for the same news.
//
// Thread-compatible.
#pragma once

#include <utility>
#include <vector>

#include "services/rpc/server_call.h"

namespace penstock {

class WakerList {
 public:
  // Also forgets the streams that are over, so that the list is never longer than it was with all
  // those alive, however many come and go between two pieces of news.
  void Add(StreamWaker waker) {
    Sweep();
    wakers_.push_back(std::move(waker));
  }
  void WakeAll() {
    Sweep();
    for (const StreamWaker& waker : wakers_) waker.Wake();
  }
  // Forgets the streams that are over.
  void Sweep() {
    std::erase_if(wakers_, [](const StreamWaker& waker) { return !waker.alive(); });
  }
  bool empty() const { return wakers_.empty(); }
  size_t size() const { return wakers_.size(); }

 private:
  std::vector<StreamWaker> wakers_;
};

}  // namespace penstock
