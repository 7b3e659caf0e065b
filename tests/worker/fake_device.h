// FakeDevice: a device whose work is done when the test says so.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "compute/buffer_pool.h"
#include "compute/device_share.h"
#include "compute/transfers.h"

namespace penstock {

// Its memory is the host's. Tickets are numbered from 0 in the order of the calls.
class FakeDevice : public Transfers, private DeviceShare {
 public:
  BufferPool& pool() { return pool_; }

  // What a ticket was given for is done, or failed.
  void Finish(int64_t ticket, absl::StatusOr<bool> result = true) {
    MutexLock lock(mutex_);
    results_.insert_or_assign(ticket, std::move(result));
  }
  // All that is under way is done; from now on everything is at once, without tickets.
  void FinishAll() {
    MutexLock lock(mutex_);
    immediate_ = true;
  }
  int64_t tickets() {
    MutexLock lock(mutex_);
    return tickets_;
  }

  // Tickets that were not used up.
  int64_t tickets_out() {
    MutexLock lock(mutex_);
    return tickets_ - static_cast<int64_t>(used_up_.size());
  }

  absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor) override {
    Tensor host = pool_.AcquireTensor(tensor.dtype, tensor.shape);
    std::memcpy(host.data<void>(), tensor.data<void>(), tensor.size_bytes());
    return Outgoing{.device = tensor, .host = std::move(host), .ticket = NextTicket()};
  }
  absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing) override { return outgoing.host; }
  absl::StatusOr<Tensor> ToDevice(const Tensor& host) override { return host; }
  absl::StatusOr<bool> Poll(int64_t ticket) override {
    MutexLock lock(mutex_);
    const auto result = results_.find(ticket);
    if (result == results_.end() && !immediate_) return false;
    used_up_.insert(ticket);
    if (result == results_.end()) return true;
    return result->second;
  }
  DeviceShare* share() override { return this; }

  int64_t NextTicket() {
    MutexLock lock(mutex_);
    return immediate_ ? kNoTicket : tickets_++;
  }

 private:
  absl::StatusOr<std::shared_ptr<Exporter>> MakeExporter() override {
    return absl::UnavailableError("this device exports nothing by itself");
  }
  absl::StatusOr<Outgoing> StartExporting(const Tensor& tensor) override {
    return Outgoing{.device = tensor, .ticket = NextTicket()};
  }
  absl::StatusOr<std::unique_ptr<Importer>> Import(const ShareBytes&) override {
    return absl::UnavailableError("this device imports nothing");
  }

  BufferPool pool_{HostMemory()};
  Mutex mutex_;
  bool immediate_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t tickets_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, absl::StatusOr<bool>> results_ ABSL_GUARDED_BY(mutex_);
  std::set<int64_t> used_up_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
