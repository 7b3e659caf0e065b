// FakeEtcd: an etcd of one member in memory, with the limits of a real one, whose answers can be lost.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "services/etcd/etcd_calls.h"

namespace penstock {

// Thread safety: all methods may be called from any thread.
class FakeEtcd final : public EtcdCalls {
 public:
  // What happens to a call: it never arrives; it is done and the answer never arrives; or it arrives when the test says so,
  // and nobody waits any more.
  enum class Fate { kFine, kRequestLost, kAnswerLost, kLate };

  // REQUIRES: `clock`, by which leases end, outlives it.
  explicit FakeEtcd(Clock& clock) : clock_(clock) {}

  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    absl::Duration timeout) override;
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                absl::Duration timeout) override;
  absl::StatusOr<Lease> GrantLease(int64_t ttl_ms, absl::Duration timeout) override;
  absl::StatusOr<int64_t> KeepAlive(int64_t lease, absl::Duration timeout) override;
  absl::Status RevokeLease(int64_t lease, absl::Duration timeout) override;
  // Looks every few milliseconds; `canceller` is not heard.
  absl::StatusOr<bool> AwaitRemoval(const std::string& key, int64_t from_revision,
                                    absl::Duration timeout, StreamCanceller& canceller) override;

  // ---- What a test does to it.
  // The fates of the next transactions, in order; those after are fine.
  void SetFates(std::deque<Fate> fates);
  // Transactions that are late arrive now, in order. Returns how many were done.
  int DeliverLate();
  // While cut off, no call arrives.
  void CutOff(bool cut_off);
  // Puts a key, or removes it, as another client would. Returns the revision.
  int64_t Put(const std::string& key, const std::string& value, int64_t lease = 0);
  void Remove(const std::string& key);

  // ---- What a test asks of it.
  // Returns all keys and values.
  std::map<std::string, std::string> All();
  // Returns how many transactions were done.
  int64_t transactions();

 private:
  struct Entry {
    std::string value;
    int64_t create_revision = 0;
    int64_t mod_revision = 0;
    int64_t lease = 0;
  };
  struct Granted {
    int64_t ttl_ms = 0;
    int64_t ends_ns = 0;
  };

  absl::Status Arrive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // ends leases whose time is over
  void EndLease(int64_t lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  etcdserverpb::RangeResponse Find(const etcdserverpb::RangeRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutEntry(const std::string& key, const std::string& value, int64_t lease)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Compares and does what follows from it.
  etcdserverpb::TxnResponse Apply(const etcdserverpb::TxnRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As a real one refuses it.
  absl::Status Check(const etcdserverpb::TxnRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, Granted> leases_ ABSL_GUARDED_BY(mutex_);
  std::deque<Fate> fates_ ABSL_GUARDED_BY(mutex_);
  std::deque<etcdserverpb::TxnRequest> late_ ABSL_GUARDED_BY(mutex_);
  bool cut_off_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 1;  // as a new etcd has
  int64_t last_lease_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t transactions_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
