#include "services/worker/snapshot_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/rpc/client.h"
#include "services/rpc/limits.h"

namespace penstock {
namespace {

using Service = v1::SnapshotPeers::AsyncService;

// For one part. A run that is stopped waits for a part that is on its way, so a peer that is frozen must not take longer than it
// takes to know that.
constexpr absl::Duration kPartTimeout = absl::Seconds(2);

std::string NameOf(const v1::SnapshotHolder& peer) {
  return absl::StrCat("worker ", peer.worker(), " (", peer.address(), ")");
}

}  // namespace

void AddSnapshotService(RpcServer& server, SnapshotMemory& memory) {
  Service& service = server.AddService<Service>(Callers::kCluster);
  server.Unary(service, &Service::RequestWriteSnapshot,
               [&memory](const v1::WriteSnapshotRequest& request,
                         const CallInfo&) -> absl::StatusOr<v1::WriteSnapshotResponse> {
                 PENSTOCK_RETURN_IF_ERROR(memory.WritePart(request.path(), request.size_bytes(),
                                                           request.offset(), request.bytes()));
                 return v1::WriteSnapshotResponse();
               });
  server.Unary(service, &Service::RequestReadSnapshot,
               [&memory](const v1::ReadSnapshotRequest& request,
                         const CallInfo&) -> absl::StatusOr<v1::ReadSnapshotResponse> {
                 v1::ReadSnapshotResponse response;
                 PENSTOCK_ASSIGN_OR_RETURN(
                     *response.mutable_bytes(),
                     memory.ReadPart(request.path(), request.offset(),
                                     std::min(request.bytes_max(), kSnapshotPartBytes)));
                 return response;
               });
}

std::shared_ptr<SnapshotCalls::Stub> SnapshotCalls::StubOf(const std::string& address) {
  MutexLock lock(mutex_);
  if (stub_ == nullptr || address_ != address) {
    stub_ = v1::SnapshotPeers::NewStub(make_channel_(address));
    address_ = address;
  }
  return stub_;
}

absl::Status SnapshotCalls::Send(const v1::SnapshotHolder& peer, const std::string& path,
                                 absl::FunctionRef<absl::Status()> may_go_on) {
  const std::shared_ptr<Stub> stub = StubOf(peer.address());
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size_bytes, memory_.SizeOf(path));
  v1::WriteSnapshotRequest request;
  request.set_path(path);
  request.set_size_bytes(size_bytes);
  int64_t offset = 0;
  do {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    PENSTOCK_ASSIGN_OR_RETURN(*request.mutable_bytes(),
                              memory_.ReadPart(path, offset, kSnapshotPartBytes));
    request.set_offset(offset);
    PENSTOCK_RETURN_IF_ERROR(
        Call(NameOf(peer), *stub, &v1::SnapshotPeers::Stub::WriteSnapshot, request, kPartTimeout)
            .status());
    offset += static_cast<int64_t>(request.bytes().size());
  } while (offset < size_bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::string> SnapshotCalls::Fetch(const v1::SnapshotHolder& peer,
                                                 const std::string& path, int64_t size_bytes,
                                                 absl::FunctionRef<absl::Status()> may_go_on) {
  const std::shared_ptr<Stub> stub = StubOf(peer.address());
  std::string content;
  v1::ReadSnapshotRequest request;
  request.set_path(path);
  request.set_bytes_max(kSnapshotPartBytes);
  do {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    request.set_offset(static_cast<int64_t>(content.size()));
    PENSTOCK_ASSIGN_OR_RETURN(
        const v1::ReadSnapshotResponse response,
        Call(NameOf(peer), *stub, &v1::SnapshotPeers::Stub::ReadSnapshot, request, kPartTimeout));
    if (response.bytes().empty()) break;
    content.append(response.bytes());
  } while (static_cast<int64_t>(content.size()) < size_bytes);
  return content;
}

}  // namespace penstock
