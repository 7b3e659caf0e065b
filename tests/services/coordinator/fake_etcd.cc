#include "tests/services/coordinator/fake_etcd.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr int kOperationsMax = 128;
constexpr size_t kRequestBytesMax = 3 << 19;  // 1.5 MiB
constexpr int64_t kLeaseMsMin = 2000;
constexpr int64_t kNsPerMillisecond = 1'000'000;

absl::Status NobodyAnswers() {
  return absl::UnavailableError("no member of etcd answers in time (fake)");
}

bool IsIn(const std::string& key, const std::string& begin, const std::string& end) {
  return end.empty() ? key == begin : key >= begin && key < end;
}

}  // namespace

absl::Status FakeEtcd::Arrive() {
  if (cut_off_) return NobodyAnswers();
  std::set<int64_t> over;
  for (const auto& [id, lease] : leases_) {
    if (clock_.MonotonicNs() >= lease.ends_ns) over.insert(id);
  }
  for (const int64_t id : over) EndLease(id);
  return absl::OkStatus();
}

void FakeEtcd::EndLease(int64_t lease) {
  if (leases_.erase(lease) == 0) return;
  ++revision_;
  std::erase_if(entries_, [lease](const auto& entry) { return entry.second.lease == lease; });
}

etcdserverpb::RangeResponse FakeEtcd::Find(const etcdserverpb::RangeRequest& request) {
  etcdserverpb::RangeResponse response;
  response.mutable_header()->set_revision(revision_);
  for (const auto& [key, entry] : entries_) {
    if (!IsIn(key, request.key(), request.range_end())) continue;
    response.set_count(response.count() + 1);
    if (request.limit() > 0 && response.kvs_size() >= request.limit()) {
      response.set_more(true);
      continue;
    }
    mvccpb::KeyValue& pair = *response.add_kvs();
    pair.set_key(key);
    if (!request.keys_only()) pair.set_value(entry.value);
    pair.set_create_revision(entry.create_revision);
    pair.set_mod_revision(entry.mod_revision);
    pair.set_lease(entry.lease);
  }
  return response;
}

void FakeEtcd::PutEntry(const std::string& key, const std::string& value, int64_t lease) {
  Entry& entry = entries_[key];
  if (entry.create_revision == 0) entry.create_revision = revision_;
  entry.value = value;
  entry.mod_revision = revision_;
  entry.lease = lease;
}

absl::Status FakeEtcd::Check(const etcdserverpb::TxnRequest& request) {
  if (request.compare_size() > kOperationsMax || request.success_size() > kOperationsMax ||
      request.failure_size() > kOperationsMax) {
    return absl::InvalidArgumentError("etcdserver: too many operations in txn request");
  }
  if (request.ByteSizeLong() > kRequestBytesMax) {
    return absl::InvalidArgumentError("etcdserver: request is too large");
  }
  std::set<std::string> put;
  for (const auto& operation : request.success()) {
    if (!operation.has_request_put()) continue;
    if (operation.request_put().key().empty() ||
        !put.insert(operation.request_put().key()).second) {
      return absl::InvalidArgumentError("etcdserver: duplicate key given in txn request");
    }
    const int64_t lease = operation.request_put().lease();
    if (lease != 0 && !leases_.contains(lease)) {
      return absl::NotFoundError("etcdserver: requested lease not found");
    }
  }
  for (const auto& operation : request.success()) {
    if (!operation.has_request_delete_range()) continue;
    const auto& range = operation.request_delete_range();
    for (const std::string& key : put) {
      if (IsIn(key, range.key(), range.range_end())) {
        return absl::InvalidArgumentError("etcdserver: duplicate key given in txn request");
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<etcdserverpb::RangeResponse> FakeEtcd::Range(
    const etcdserverpb::RangeRequest& request, absl::Duration) {
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(Arrive());
  return Find(request);
}

absl::StatusOr<etcdserverpb::TxnResponse> FakeEtcd::Txn(const etcdserverpb::TxnRequest& request,
                                                        absl::Duration) {
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(Arrive());
  Fate fate = Fate::kFine;
  if (!fates_.empty()) {
    fate = fates_.front();
    fates_.pop_front();
  }
  if (fate == Fate::kLate) late_.push_back(request);
  if (fate == Fate::kLate || fate == Fate::kRequestLost) return NobodyAnswers();
  PENSTOCK_RETURN_IF_ERROR(Check(request));
  const etcdserverpb::TxnResponse response = Apply(request);
  if (fate == Fate::kAnswerLost) return NobodyAnswers();
  return response;
}

int FakeEtcd::DeliverLate() {
  MutexLock lock(mutex_);
  int done = 0;
  for (const etcdserverpb::TxnRequest& request : std::exchange(late_, {})) {
    if (Check(request).ok()) done += Apply(request).succeeded();
  }
  return done;
}

etcdserverpb::TxnResponse FakeEtcd::Apply(const etcdserverpb::TxnRequest& request) {
  etcdserverpb::TxnResponse response;
  response.set_succeeded(true);
  for (const etcdserverpb::Compare& compare : request.compare()) {
    const auto found = entries_.find(compare.key());
    const Entry entry = found == entries_.end() ? Entry() : found->second;
    const bool holds = compare.target() == etcdserverpb::Compare::MOD
                           ? entry.mod_revision == compare.mod_revision()
                           : entry.create_revision == compare.create_revision();
    if (!holds) response.set_succeeded(false);
  }
  const auto& operations = response.succeeded() ? request.success() : request.failure();
  bool writes = false;
  for (const auto& operation : operations) writes |= !operation.has_request_range();
  if (writes) ++revision_;
  for (const auto& operation : operations) {
    etcdserverpb::ResponseOp& done = *response.add_responses();
    if (operation.has_request_put()) {
      const etcdserverpb::PutRequest& put = operation.request_put();
      PutEntry(put.key(), put.value(), put.lease());
      done.mutable_response_put();
    } else if (operation.has_request_delete_range()) {
      const auto& range = operation.request_delete_range();
      done.mutable_response_delete_range()->set_deleted(
          static_cast<int64_t>(std::erase_if(entries_, [&](const auto& entry) {
            return IsIn(entry.first, range.key(), range.range_end());
          })));
    } else {
      *done.mutable_response_range() = Find(operation.request_range());
    }
  }
  response.mutable_header()->set_revision(revision_);
  ++transactions_;
  return response;
}

absl::StatusOr<EtcdCalls::Lease> FakeEtcd::GrantLease(int64_t ttl_ms, absl::Duration) {
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(Arrive());
  const int64_t granted_ms = std::max(ttl_ms, kLeaseMsMin);
  leases_[++last_lease_] = {.ttl_ms = granted_ms,
                            .ends_ns = clock_.MonotonicNs() + granted_ms * kNsPerMillisecond};
  return Lease{.id = last_lease_, .ttl_ms = granted_ms};
}

absl::StatusOr<int64_t> FakeEtcd::KeepAlive(int64_t lease, absl::Duration) {
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(Arrive());
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return 0;
  found->second.ends_ns = clock_.MonotonicNs() + found->second.ttl_ms * kNsPerMillisecond;
  return found->second.ttl_ms;
}

absl::Status FakeEtcd::RevokeLease(int64_t lease, absl::Duration) {
  MutexLock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(Arrive());
  EndLease(lease);
  return absl::OkStatus();
}

absl::StatusOr<bool> FakeEtcd::AwaitRemoval(const std::string& key, int64_t, absl::Duration timeout,
                                            StreamCanceller&) {
  const absl::Time deadline = absl::Now() + timeout;
  for (;;) {
    {
      MutexLock lock(mutex_);
      PENSTOCK_RETURN_IF_ERROR(Arrive());
      if (!entries_.contains(key)) return true;
    }
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

void FakeEtcd::SetFates(std::deque<Fate> fates) {
  MutexLock lock(mutex_);
  fates_ = std::move(fates);
}

void FakeEtcd::CutOff(bool cut_off) {
  MutexLock lock(mutex_);
  cut_off_ = cut_off;
}

int64_t FakeEtcd::Put(const std::string& key, const std::string& value, int64_t lease) {
  MutexLock lock(mutex_);
  ++revision_;
  PutEntry(key, value, lease);
  return revision_;
}

void FakeEtcd::Remove(const std::string& key) {
  MutexLock lock(mutex_);
  ++revision_;
  entries_.erase(key);
}

std::map<std::string, std::string> FakeEtcd::All() {
  MutexLock lock(mutex_);
  std::map<std::string, std::string> all;
  for (const auto& [key, entry] : entries_) all[key] = entry.value;
  return all;
}

int64_t FakeEtcd::transactions() {
  MutexLock lock(mutex_);
  return transactions_;
}

}  // namespace penstock
