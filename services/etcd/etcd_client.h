// EtcdClient: the members of a cluster of etcd, asked over gRPC. A call goes to the member that answered last; if that one
// does not, to the others in turn, each with its share of the time that is left.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <grpcpp/security/credentials.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "etcd/rpc.grpc.pb.h"
#include "services/etcd/etcd_calls.h"
#include "services/rpc/address.h"

namespace penstock {

class EtcdClient final : public EtcdCalls {
 public:
  // REQUIRES: there is a member. Connects when it is first asked.
  EtcdClient(const std::vector<HostPort>& members,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials);

  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    absl::Duration timeout) override;
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                absl::Duration timeout) override;
  absl::StatusOr<Lease> GrantLease(int64_t ttl_ms, absl::Duration timeout) override;
  absl::StatusOr<int64_t> KeepAlive(int64_t lease, absl::Duration timeout) override;
  absl::Status RevokeLease(int64_t lease, absl::Duration timeout) override;
  absl::StatusOr<bool> AwaitRemoval(const std::string& key, int64_t from_revision,
                                    absl::Duration timeout, StreamCanceller& canceller) override;

 private:
  struct Member {
    std::string name;  // "etcd member 10.0.0.7:2379"
    std::unique_ptr<etcdserverpb::KV::Stub> kv;
    std::unique_ptr<etcdserverpb::Lease::Stub> lease;
    std::unique_ptr<etcdserverpb::Watch::Stub> watch;
  };

  // Asks one member after the other until one answers, be it with an error that the others would give, too.
  absl::Status Ask(absl::Duration timeout,
                   const std::function<absl::Status(Member&, absl::Duration)>& attempt);
  // Does so and returns what it answers.
  template <typename Response>
  absl::StatusOr<Response> AskFor(
      absl::Duration timeout,
      const std::function<absl::StatusOr<Response>(Member&, absl::Duration)>& attempt);
  // Says what to do about an error.
  absl::Status Explain(const absl::Status& status) const;

  std::vector<Member> members_;      // constant after construction
  std::atomic<size_t> current_ = 0;  // the member that is asked first
};

}  // namespace penstock
