#include "services/etcd/etcd_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "services/rpc/limits.h"
#include "services/rpc/status.h"

namespace penstock {
namespace {

constexpr int64_t kMsPerSecond = 1000;

// Returns the length of a lease as etcd tells it. To count less than it grants is safe.
int64_t LeaseMs(int64_t ttl_seconds) {
  constexpr int64_t kSecondsMax = 3600;
  return std::clamp<int64_t>(ttl_seconds, 0, kSecondsMax) * kMsPerSecond;
}

// Without pings: a member throws out who pings more often than every 5 s, and every call has a deadline.
grpc::ChannelArguments ArgumentsOfChannels() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, rpc_limits::kReconnectBackoffMinMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, rpc_limits::kReconnectBackoffMaxMs);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, rpc_limits::kMetadataBytesMax);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_TCP_TX_ZEROCOPY_ENABLED, 0);
  arguments.SetMaxReceiveMessageSize(etcd_limits::kResponseBytesMax);
  return arguments;
}

// Whether another member may do what this one could not.
bool IsOfTheMember(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Writes one message to a stream of both directions, and reads the first that comes back, before `context`'s deadline.
template <typename Request, typename Response>
absl::Status AskOnce(const std::string& peer, grpc::ClientContext& context,
                     std::unique_ptr<grpc::ClientReaderWriter<Request, Response>> stream,
                     const Request& request, Response& response) {
  const bool answered = stream->Write(request) && stream->Read(&response);
  if (answered) context.TryCancel();  // else the member would be waited for to end the stream
  const grpc::Status status = stream->Finish();
  if (answered) return absl::OkStatus();
  if (status.ok()) {
    return absl::UnavailableError(absl::StrCat(peer, ": ended the stream without an answer"));
  }
  return FromGrpcStatus(status, peer);
}

}  // namespace

EtcdClient::EtcdClient(const std::vector<HostPort>& members,
                       const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  const grpc::ChannelArguments arguments = ArgumentsOfChannels();
  for (const HostPort& address : members) {
    const auto channel = grpc::CreateCustomChannel(address.ToString(), credentials, arguments);
    members_.push_back({.name = absl::StrCat("etcd member ", address.ToString()),
                        .kv = etcdserverpb::KV::NewStub(channel),
                        .lease = etcdserverpb::Lease::NewStub(channel),
                        .watch = etcdserverpb::Watch::NewStub(channel)});
  }
}

absl::Status EtcdClient::Ask(absl::Duration timeout,
                             const std::function<absl::Status(Member&, absl::Duration)>& attempt) {
  const absl::Time deadline = absl::Now() + timeout;
  const size_t first = current_;
  absl::Status last = absl::DeadlineExceededError("etcd: there was no time to ask");
  for (size_t i = 0; i < members_.size(); ++i) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    const size_t member = (first + i) % members_.size();
    last = attempt(members_[member], left / static_cast<int64_t>(members_.size() - i));
    if (!IsOfTheMember(last)) {
      current_ = member;
      return Explain(last);
    }
    current_ = (member + 1) % members_.size();
  }
  return Explain(last);
}

template <typename Response>
absl::StatusOr<Response> EtcdClient::AskFor(
    absl::Duration timeout,
    const std::function<absl::StatusOr<Response>(Member&, absl::Duration)>& attempt) {
  Response response;
  PENSTOCK_RETURN_IF_ERROR(Ask(timeout, [&](Member& member, absl::Duration time) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(response, attempt(member, time));
    return absl::OkStatus();
  }));
  return response;
}

absl::Status EtcdClient::Explain(const absl::Status& status) const {
  if (status.ok()) return status;
  const std::string said(status.message());
  if (IsOfTheMember(status)) {
    const std::string names = absl::StrJoin(
        members_, ", ", [](std::string* out, const Member& member) { *out += member.name; });
    return absl::UnavailableError(
        absl::StrCat("no member of etcd answers in time (last ", said, "); is a majority of ",
                     names, " running, and reachable from here with these certificates?"));
  }
  if (absl::IsResourceExhausted(status)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(said, "; compact and defragment etcd, then run etcdctl alarm disarm"));
  }
  if (absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status)) {
    return absl::Status(status.code(),
                        absl::StrCat(said,
                                     "; give etcd's user of this certificate's name the right to "
                                     "read and write below the prefix"));
  }
  return status;
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(
    const etcdserverpb::RangeRequest& request, absl::Duration timeout) {
  return AskFor<etcdserverpb::RangeResponse>(timeout, [&](Member& member, absl::Duration time) {
    return Call(member.name, *member.kv, &etcdserverpb::KV::Stub::Range, request, time);
  });
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(const etcdserverpb::TxnRequest& request,
                                                          absl::Duration timeout) {
  return AskFor<etcdserverpb::TxnResponse>(timeout, [&](Member& member, absl::Duration time) {
    return Call(member.name, *member.kv, &etcdserverpb::KV::Stub::Txn, request, time);
  });
}

absl::StatusOr<EtcdCalls::Lease> EtcdClient::GrantLease(int64_t ttl_ms, absl::Duration timeout) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl((ttl_ms + kMsPerSecond - 1) / kMsPerSecond);
  etcdserverpb::LeaseGrantResponse response;
  PENSTOCK_RETURN_IF_ERROR(Ask(timeout, [&](Member& member, absl::Duration time) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(
        response,
        Call(member.name, *member.lease, &etcdserverpb::Lease::Stub::LeaseGrant, request, time));
    if (response.error().empty()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(member.name, ": no lease: ", response.error()));
  }));
  return Lease{.id = response.id(), .ttl_ms = LeaseMs(response.ttl())};
}

absl::StatusOr<int64_t> EtcdClient::KeepAlive(int64_t lease, absl::Duration timeout) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseKeepAliveResponse response;
  PENSTOCK_RETURN_IF_ERROR(Ask(timeout, [&](Member& member, absl::Duration time) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + time));
    return AskOnce(member.name, context, member.lease->LeaseKeepAlive(&context), request, response);
  }));
  return LeaseMs(response.ttl());
}

absl::Status EtcdClient::RevokeLease(int64_t lease, absl::Duration timeout) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  const absl::Status status = Ask(timeout, [&](Member& member, absl::Duration time) {
    return Call(member.name, *member.lease, &etcdserverpb::Lease::Stub::LeaseRevoke, request, time)
        .status();
  });
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<bool> EtcdClient::AwaitRemoval(const std::string& key, int64_t from_revision,
                                              absl::Duration timeout, StreamCanceller& canceller) {
  const size_t current = current_;
  Member& member = members_[current];
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  canceller.Attach(&context);
  etcdserverpb::WatchRequest request;
  request.mutable_create_request()->set_key(key);
  request.mutable_create_request()->set_start_revision(from_revision);
  const auto stream = member.watch->Watch(&context);
  bool removed = false, ended = !stream->Write(request);
  absl::Status refused;
  etcdserverpb::WatchResponse response;
  while (!removed && !ended && stream->Read(&response)) {
    if (response.canceled()) {
      refused = absl::OutOfRangeError(
          absl::StrCat(member.name, ": ends the watch of ", key, ": ", response.cancel_reason()));
      ended = true;
    }
    removed = std::any_of(
        response.events().begin(), response.events().end(),
        [](const mvccpb::Event& event) { return event.type() == mvccpb::Event::DELETE; });
  }
  context.TryCancel();
  const absl::Status status = FromGrpcStatus(stream->Finish(), member.name);
  canceller.Attach(nullptr);
  if (removed) return true;
  PENSTOCK_RETURN_IF_ERROR(refused);
  if (absl::IsDeadlineExceeded(status) || absl::IsCancelled(status)) return false;
  if (absl::IsUnavailable(status)) current_ = (current + 1) % members_.size();
  PENSTOCK_RETURN_IF_ERROR(Explain(status));
  return absl::UnavailableError(absl::StrCat(member.name, ": ended the watch of ", key));
}

}  // namespace penstock
