#include "compute/weight_versions.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {

absl::StatusOr<WeightVersions> WeightVersions::Create(BufferPool& pool, int64_t count,
                                                      bool with_mirror, int64_t versions_max,
                                                      bool with_arrays) {
  WeightVersions versions;
  versions.pool_ = &pool;
  versions.count_ = count;
  versions.with_mirror_ = with_mirror;
  versions.versions_max_ = versions_max;
  versions.live_.reserve(versions_max);
  versions.idle_.reserve(versions_max);
  Version first;
  if (with_arrays) {
    PENSTOCK_ASSIGN_OR_RETURN(first, versions.TakeArray());
  }
  versions.live_.push_back(std::move(first));
  return versions;
}

absl::Status WeightVersions::PutArrays(int64_t number, Buffer f32) {
  PENSTOCK_CHECK(live() == 1 && !has_arrays());
  PENSTOCK_CHECK(f32.size_bytes() >= count_ * static_cast<int64_t>(sizeof(float)));
  WeightArrays arrays = {.f32 = std::move(f32)};
  if (with_mirror_) {
    arrays.bf16 = pool_->Acquire(count_ * static_cast<int64_t>(sizeof(uint16_t)));
    if (!arrays.bf16) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "no memory for the bf16 weights of %d floats that were sent; use more stages", count_));
    }
  }
  live_.back().arrays = std::move(arrays);
  Renumber(number);
  return absl::OkStatus();
}

void WeightVersions::DropArrays() {
  PENSTOCK_CHECK(live() == 1);
  live_.back().arrays = WeightArrays();
}

const WeightVersions::Version* WeightVersions::Find(int64_t number) const {
  for (const Version& version : live_) {
    if (version.first <= number && number <= version.number) {
      return &version;
    }
  }
  return nullptr;
}

absl::Status WeightVersions::Reserve() {
  PENSTOCK_CHECK(!host_stash_);
  while (allocated() < versions_max_) {
    PENSTOCK_ASSIGN_OR_RETURN(Version version, MakeArray());
    idle_.push_back(std::move(version));
  }
  return absl::OkStatus();
}

absl::StatusOr<WeightVersions::Version> WeightVersions::TakeArray() {
  if (idle_.empty()) return MakeArray();
  Version version = std::move(idle_.back());
  idle_.pop_back();
  return version;
}

absl::StatusOr<WeightVersions::Version> WeightVersions::MakeArray() {
  Version version;
  WeightArrays& arrays = version.arrays;
  arrays.f32 = pool_->Acquire(count_ * static_cast<int64_t>(sizeof(float)));
  if (with_mirror_) {
    arrays.bf16 = pool_->Acquire(count_ * static_cast<int64_t>(sizeof(uint16_t)));
  }
  if (!arrays.f32 || (with_mirror_ && !arrays.bf16)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "no memory for weight version %d of %d floats; use more stages or fewer versions",
        allocated() + 1, count_));
  }
  return version;
}

absl::Status WeightVersions::BeginNumber(int64_t number, int64_t oldest_live) {
  if (number != current().number + 1) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "step to weight version %d, but the current one is %d", number, current().number));
  }
  if (host_stash_) {
    for (Version& version : live_) {
      PENSTOCK_RETURN_IF_ERROR(host_stash_->FinishLeaving(version.arrays, version.copy));
    }
  }
  while (live_.size() > 1 && live_.front().number < oldest_live) {
    if (!host_stash_) idle_.push_back(std::move(live_.front()));
    live_.erase(live_.begin());
  }
  return absl::OkStatus();
}

absl::Status WeightVersions::Repeat(int64_t number, int64_t oldest_live) {
  PENSTOCK_RETURN_IF_ERROR(BeginNumber(number, oldest_live));
  live_.back().number = number;
  return absl::OkStatus();
}

absl::StatusOr<WeightVersions::Transition> WeightVersions::Advance(int64_t number,
                                                                   bool keep_replaced,
                                                                   int64_t oldest_live) {
  PENSTOCK_RETURN_IF_ERROR(BeginNumber(number, oldest_live));
  if (!keep_replaced) {
    live_.back().first = live_.back().number = number;
    return Transition{&live_.back(), &live_.back()};
  }
  if (live() >= versions_max_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "weight version %d would make %d live ones; at most %d were announced (versions_max)",
        number, live() + 1, versions_max_));
  }
  PENSTOCK_ASSIGN_OR_RETURN(Version next, TakeArray());
  next.first = next.number = number;
  live_.push_back(std::move(next));
  return Transition{&live_[live_.size() - 2], &live_.back()};
}

WeightVersions::Version* WeightVersions::FindStashed(int64_t number) {
  const Version* version = host_stash_ ? Find(number) : nullptr;
  if (version == nullptr || version == &current()) return nullptr;
  return &live_[version - live_.data()];
}

absl::Status WeightVersions::StartLeaving(int64_t number) {
  Version* version = FindStashed(number);
  return version == nullptr ? absl::OkStatus()
                            : host_stash_->StartLeaving(version->arrays, version->copy);
}

absl::Status WeightVersions::StartBringingBack(int64_t number) {
  Version* version = FindStashed(number);
  return version == nullptr ? absl::OkStatus() : host_stash_->StartComing(version->copy);
}

absl::Status WeightVersions::BringBack(int64_t number) {
  Version* version = FindStashed(number);
  if (version == nullptr) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(host_stash_->StartComing(version->copy));
  return host_stash_->FinishComing(version->arrays, version->copy);
}

void WeightVersions::Leave(int64_t number) {
  Version* version = FindStashed(number);
  if (version != nullptr && version->copy.state == HostCopy::State::kBoth) {
    HostStash::Leave(version->arrays, version->copy);
  }
}

int64_t WeightVersions::version_bytes() const {
  const WeightArrays& arrays = current().arrays;
  return arrays.f32.size_bytes() + arrays.bf16.size_bytes();
}

int64_t WeightVersions::device_bytes() const {
  int64_t on_device = static_cast<int64_t>(idle_.size());
  for (const Version& version : live_) {
    if (version.copy.state != HostCopy::State::kAway) ++on_device;
  }
  return on_device * version_bytes();
}

int64_t WeightVersions::host_bytes() const {
  int64_t on_host = 0;
  for (const Version& version : live_) {
    if (version.copy.state != HostCopy::State::kNone) ++on_host;
  }
  return on_host * version_bytes();
}

void WeightVersions::Renumber(int64_t number) {
  PENSTOCK_CHECK(live() == 1);
  live_.back().first = live_.back().number = number;
}

}  // namespace penstock
