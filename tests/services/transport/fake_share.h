// FakeShare: devices of one host that export each other memory, as far as a transport can tell. The memory is
// the test's own, and what names it is a number in a table.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "compute/buffer_pool.h"
#include "compute/device_share.h"

namespace penstock {

// Blocks of device memory by number, as a driver knows them.
class FakeHost {
 public:
  explicit FakeHost(int64_t id) : id_(id) {}
  int64_t id() const { return id_; }

  int64_t NumberOf(void* data, int64_t size_bytes) {
    MutexLock lock(mutex_);
    for (const auto& [number, block] : blocks_) {
      if (block.first == data) return number;
    }
    blocks_[next_] = {data, size_bytes};
    return next_++;
  }
  // Null if there is none of that number and size.
  void* Find(int64_t number, int64_t size_bytes) {
    MutexLock lock(mutex_);
    const auto block = blocks_.find(number);
    return block == blocks_.end() || block->second.second < size_bytes ? nullptr
                                                                       : block->second.first;
  }

 private:
  const int64_t id_;
  Mutex mutex_;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<int64_t, std::pair<void*, int64_t>> blocks_ ABSL_GUARDED_BY(mutex_);
};

// Both export and import nothing but numbers: hosts' in offers, blocks' in descriptors.
class FakeShare final : public DeviceShare {
 public:
  FakeShare(FakeHost& host, BufferPool& pool) : host_(host), pool_(pool) {}

  absl::StatusOr<std::shared_ptr<Exporter>> MakeExporter() override {
    if (!exports) return absl::UnavailableError("this system exports nothing");
    return std::make_shared<FakeExporter>(host_);
  }
  absl::StatusOr<Outgoing> StartExporting(const Tensor& tensor) override {
    return Outgoing{.device = tensor};
  }
  absl::StatusOr<std::unique_ptr<Importer>> Import(const ShareBytes& offer) override {
    int64_t host = 0;
    if (!offer.To(host)) return absl::InvalidArgumentError("not an offer");
    if (host != host_.id()) return absl::UnavailableError("the peer is on another host");
    ++open_importers;
    return std::make_unique<FakeImporter>(*this);
  }

  bool exports = true;
  std::atomic<int> open_importers = 0;

 private:
  class FakeExporter final : public Exporter {
   public:
    explicit FakeExporter(FakeHost& host) : host_(host), offer_(ShareBytes::From(host.id())) {}
    const ShareBytes& offer() const override { return offer_; }
    absl::StatusOr<ShareBytes> Describe(const Tensor& tensor) override {
      return ShareBytes::From(host_.NumberOf(tensor.data<void>(), tensor.buffer.size_bytes()));
    }

   private:
    FakeHost& host_;
    const ShareBytes offer_;
  };

  class FakeImporter final : public Importer {
   public:
    explicit FakeImporter(FakeShare& share) : share_(share) {}
    ~FakeImporter() override { --share_.open_importers; }
    const char* path() const override { return "fake-ipc"; }
    absl::StatusOr<Fetched> Fetch(const ShareBytes& descriptor, DType dtype,
                                  const Shape& shape) override {
      int64_t number = 0;
      if (!descriptor.To(number)) return absl::InvalidArgumentError("not a descriptor");
      Tensor tensor = share_.pool_.AcquireTensor(dtype, shape);
      const void* exported = share_.host_.Find(number, tensor.size_bytes());
      if (exported == nullptr)
        return absl::InvalidArgumentError("nothing of that size is exported");
      std::memcpy(tensor.data<void>(), exported, tensor.size_bytes());
      return Fetched{.tensor = std::move(tensor)};
    }

   private:
    FakeShare& share_;
  };

  FakeHost& host_;
  BufferPool& pool_;
};

}  // namespace penstock
