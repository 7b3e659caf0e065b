// FakeGroups: groups of devices that are threads of the test.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/mutex.h"
#include "compute/device_group.h"

namespace penstock {

// Where the members of all groups meet.
class FakeMeeting {
 public:
  int64_t NextId() {
    MutexLock lock(mutex_);
    return next_++;
  }
  bool Come(int64_t id, int size, absl::Time deadline) {
    MutexLock lock(mutex_);
    int& came = came_[id];
    ++came;
    changed_.NotifyAll();
    return WaitUntil(deadline, [&] { return came >= size; });
  }
  // data = the sum of both members' data.
  bool Add(int64_t id, int rank, float* data, int64_t count, absl::Time deadline) {
    MutexLock lock(mutex_);
    Sum& sum = sums_[id];
    sum.parts[rank].assign(data, data + count);
    ++sum.came;
    changed_.NotifyAll();
    const int64_t round = (sum.came + 1) / 2;
    if (!WaitUntil(deadline, [&] { return sum.came >= 2 * round; })) return false;
    for (int64_t i = 0; i < count; ++i) data[i] = sum.parts[0][i] + sum.parts[1][i];
    ++sum.left;
    changed_.NotifyAll();
    return WaitUntil(deadline, [&] { return sum.left >= 2 * round; });
  }

 private:
  struct Sum {
    std::vector<float> parts[2];
    int64_t came = 0;
    int64_t left = 0;
  };

  template <typename Condition>
  bool WaitUntil(absl::Time deadline, Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto until = Monotonic(deadline);
    while (!condition()) {
      if (!changed_.WaitUntil(mutex_, until)) return condition();
    }
    return true;
  }

  Mutex mutex_;
  CondVar changed_;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<int64_t, int> came_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, Sum> sums_ ABSL_GUARDED_BY(mutex_);
};

class FakeGroups final : public DeviceGroups {
 public:
  FakeGroups(FakeMeeting& meeting, std::string device)
      : meeting_(meeting), device_(std::move(device)) {}

  const char* name() const override { return "fake-group"; }
  std::string device() const override { return device_; }
  absl::StatusOr<DeviceGroupId> MakeId() override {
    if (!can_make.ok()) return can_make;
    DeviceGroupId id = {};
    const int64_t number = meeting_.NextId();
    std::memcpy(id.data(), &number, sizeof(number));
    return id;
  }
  absl::StatusOr<std::unique_ptr<DeviceGroup>> Join(const DeviceGroupId& id, int rank, int size,
                                                    absl::Time deadline) override {
    int64_t number = 0;
    std::memcpy(&number, id.data(), sizeof(number));
    const bool met = meeting_.Come(number, size, deadline);
    if (!can_join.ok()) return can_join;
    if (!met) return absl::DeadlineExceededError("the other members did not come in time");
    return std::make_unique<FakeGroup>(*this, number, rank);
  }

  absl::Status can_make, can_join, can_sum;

 private:
  class FakeGroup final : public DeviceGroup {
   public:
    FakeGroup(FakeGroups& groups, int64_t id, int rank) : groups_(groups), id_(id), rank_(rank) {}
    absl::Status AllReduceSum(float* data, int64_t count) override {
      if (!groups_.can_sum.ok()) return groups_.can_sum;
      if (groups_.meeting_.Add(id_, rank_, data, count, absl::Now() + absl::Seconds(20))) {
        return absl::OkStatus();
      }
      return absl::UnavailableError("the other member is gone");
    }

   private:
    FakeGroups& groups_;
    const int64_t id_;
    const int rank_;
  };

  FakeMeeting& meeting_;
  const std::string device_;
};

}  // namespace penstock
