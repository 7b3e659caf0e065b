// Snapshots over gRPC: the service by which peers copy and fetch them, and the calls to that of others.
//
// Files travel in parts, one call each, and not over the connections of tensors, which never wait for them.
//
// Thread safety: all may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/server.h"
#include "worker/snapshot_peers.h"

namespace penstock {

// The most that one call carries.
inline constexpr int64_t kSnapshotPartBytes = 512 << 10;
static_assert(kSnapshotPartBytes < rpc_limits::kControlMessageBytesMax);

// Adds the service to `server`. REQUIRES: the server is not started; `memory` outlives it.
void AddSnapshotService(RpcServer& server, SnapshotMemory& memory);

class SnapshotCalls final : public SnapshotPeers {
 public:
  using MakeChannel = std::function<std::shared_ptr<grpc::Channel>(const std::string& address)>;

  // REQUIRES: `memory` outlives the calls.
  SnapshotCalls(SnapshotMemory& memory, MakeChannel make_channel)
      : memory_(memory), make_channel_(std::move(make_channel)) {}

  SnapshotMemory& memory() override { return memory_; }
  absl::Status Send(const v1::SnapshotHolder& peer, const std::string& path,
                    absl::FunctionRef<absl::Status()> may_go_on) override;
  absl::StatusOr<std::string> Fetch(const v1::SnapshotHolder& peer, const std::string& path,
                                    int64_t size_bytes,
                                    absl::FunctionRef<absl::Status()> may_go_on) override;

 private:
  using Stub = v1::SnapshotPeers::Stub;
  // Returns that of the last call if it was to the same address, whose connection is still there.
  std::shared_ptr<Stub> StubOf(const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);

  SnapshotMemory& memory_;
  const MakeChannel make_channel_;

  Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Stub> stub_ ABSL_GUARDED_BY(mutex_);  // to that address
};

}  // namespace penstock
