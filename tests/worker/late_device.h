// LateDevice: the CPU as a device with memory of its own, whose copies to the host are made some time after
// they were asked for, so that whoever does not wait, or writes to what leaves, shows.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "base/random.h"
#include "tests/compute/two_pools.h"

namespace penstock {

class LateDevice : public TwoPools {
 public:
  explicit LateDevice(uint64_t seed) : random_(seed, 1) {}

  absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor) override {
    absl::StatusOr<Outgoing> outgoing = TwoPools::StartToHost(tensor);
    if (!outgoing.ok()) return outgoing;
    MutexLock lock(mutex_);
    outgoing->ticket = tickets_++;
    copies_.emplace(outgoing->ticket,
                    Copy{outgoing->device, outgoing->host, static_cast<int>(random_.Below(8))});
    return outgoing;
  }
  absl::StatusOr<bool> Poll(int64_t ticket) override {
    MutexLock lock(mutex_);
    const auto copy = copies_.find(ticket);
    if (copy->second.polls_left-- > 0) return false;
    Make(copy->second);
    copies_.erase(copy);
    return true;
  }
  absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing) override {
    MutexLock lock(mutex_);
    const auto copy = copies_.find(outgoing.ticket);
    Make(copy->second);
    copies_.erase(copy);
    return std::move(outgoing.host);
  }

 private:
  struct Copy {
    Tensor device;
    Tensor host;
    int polls_left = 0;
  };
  static void Make(const Copy& copy) {
    std::memcpy(copy.host.data<void>(), copy.device.data<void>(), copy.host.size_bytes());
  }

  Mutex mutex_;
  RandomStream random_ ABSL_GUARDED_BY(mutex_);
  int64_t tickets_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Copy> copies_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
