// EtcdCalls: what Penstock asks of etcd. EtcdClient asks a real one; tests have one in memory.
//
// Each call waits at most `timeout`. After an error other than one that etcd itself gave for the request, it is unknown
// whether the request was done; so callers ask only for what may be done twice.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "etcd/rpc.pb.h"
#include "services/rpc/client.h"

namespace penstock {

// Limits of etcd as it is set up by default, with room for what frames a request.
namespace etcd_limits {
inline constexpr int kTransactionOperationsMax = 100;     // of 128
inline constexpr int64_t kTransactionBytesMax = 1 << 20;  // of 1.5 MiB
inline constexpr int kResponseBytesMax = 16 << 20;        // ours: what a page of keys may weigh
inline constexpr absl::Duration kCallTimeout = absl::Seconds(2);
}  // namespace etcd_limits

class EtcdCalls {
 public:
  struct Lease {
    int64_t id = 0;
    int64_t ttl_ms = 0;  // what etcd grants, from when it was asked on
  };

  virtual ~EtcdCalls() = default;

  // Reads what the majority has.
  // Errors of all calls: Unavailable (no member answers in time), ResourceExhausted (etcd is full), InvalidArgument,
  // PermissionDenied, Unauthenticated; they name the member and say what to do.
  virtual absl::StatusOr<etcdserverpb::RangeResponse> Range(
      const etcdserverpb::RangeRequest& request, absl::Duration timeout) = 0;
  virtual absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                        absl::Duration timeout) = 0;

  virtual absl::StatusOr<Lease> GrantLease(int64_t ttl_ms, absl::Duration timeout) = 0;
  // Lets the lease begin over. Returns its length in ms; 0: it has ended.
  virtual absl::StatusOr<int64_t> KeepAlive(int64_t lease, absl::Duration timeout) = 0;
  // Ends the lease and removes its keys. OK if it has ended already.
  virtual absl::Status RevokeLease(int64_t lease, absl::Duration timeout) = 0;

  // Waits until `key` is removed at `from_revision` or later. Returns whether it was; false: not within `timeout`, or
  // `canceller` has ended the wait. Errors also: OutOfRange (etcd does not know changes that old any more).
  virtual absl::StatusOr<bool> AwaitRemoval(const std::string& key, int64_t from_revision,
                                            absl::Duration timeout, StreamCanceller& canceller) = 0;
};

}  // namespace penstock
