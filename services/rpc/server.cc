#include "services/rpc/server.h"

#include <grpc/compression.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

// Threads of gRPC's own: the reflection service is a synchronous one.
constexpr int kGrpcThreadsMax = 16;

const char* NameOf(Callers callers) {
  switch (callers) {
    case Callers::kCluster:
      return "rpc-cluster";
    case Callers::kUsers:
      return "rpc-users";
    case Callers::kWatchers:
      return "rpc-watchers";
    case Callers::kAttached:
      return "rpc-attached";
    case Callers::kProbes:
      return "rpc-probes";
    case Callers::kData:
      return "rpc-data";
  }
  return "";
}

// gRPC's reflection library switches itself on for every server of a program that links it; this
// takes it out again.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return dynamic_cast<grpc::reflection::ProtoServerReflectionPlugin*>(plugin.get()) != nullptr;
    });
  }
};

}  // namespace

RpcServer::RpcServer(RpcServerOptions options) : options_(std::move(options)) {
  PENSTOCK_CHECK(options_.polling_threads > 0);
  health_.AddTo(*this);
}

RpcServer::~RpcServer() { Shutdown(); }

void RpcServer::AddExtension(ServerExtension& extension) { extensions_.push_back(&extension); }

Callers RpcServer::CallersOf(const grpc::Service& service) const {
  const auto found =
      std::find_if(services_.begin(), services_.end(),
                   [&](const OwnedService& owned) { return owned.service.get() == &service; });
  PENSTOCK_CHECK(found != services_.end());
  return found->callers;
}

std::unique_ptr<CallLane> RpcServer::MakeLane(Callers callers) const {
  const int calls_max = callers == Callers::kCluster
                            ? options_.cluster_calls_max
                            : options_.handler_threads + options_.handler_queue_max;
  // Workers may share one certificate, and each has few calls at a time, so for them all places are anybody's.
  CallLaneLimits limits = {
      .threads = options_.handler_threads, .calls_max = calls_max, .calls_per_peer_max = calls_max};
  if (callers == Callers::kUsers) limits.calls_per_peer_max = options_.calls_per_peer_max;
  if (callers == Callers::kWatchers) {
    limits.calls_max = rpc_limits::kWatchersMax;
    limits.calls_per_peer_max = rpc_limits::kWatchersPerPeerMax;
  }
  if (callers == Callers::kAttached) {
    limits = {.threads = 1,
              .calls_max = rpc_limits::kAttachedMax,
              .calls_per_peer_max = rpc_limits::kAttachedMax};
  }
  if (callers == Callers::kProbes) limits.threads = 1;
  if (callers == Callers::kData) {
    limits = {.threads = rpc_limits::kDataThreads,
              .calls_max = rpc_limits::kDataCallsMax,
              .calls_per_peer_max = rpc_limits::kDataCallsPerPeerMax};
  }
  return std::make_unique<CallLane>(NameOf(callers), limits);
}

void RpcServer::Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options_.message_bytes_max);
  builder.SetMaxSendMessageSize(options_.message_bytes_max);
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  grpc::ResourceQuota quota("penstock server");
  quota.Resize(carries_tensors() ? rpc_limits::kTensorServerMemoryBytesMax
                                 : rpc_limits::kControlServerMemoryBytesMax);
  quota.SetMaxThreads(kGrpcThreadsMax);
  builder.SetResourceQuota(quota);
  // Windows that grow with the speed of a connection let several megabytes in before the quota can close it, and nothing
  // but tensors needs them.
  if (!carries_tensors()) builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  if (!options_.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, rpc_limits::kHandshakeTimeoutMs);
  // Without GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS streams live on for as long as they want.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options_.connection_age)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, rpc_limits::kConcurrentStreamsMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, rpc_limits::kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, rpc_limits::kKeepaliveIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, rpc_limits::kServerKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             rpc_limits::kPingIntervalMinMs);
  builder.AddChannelArgument(GRPC_ARG_TCP_TX_ZEROCOPY_ENABLED, 0);
}

absl::Status RpcServer::Start() {
  PENSTOCK_CHECK(server_ == nullptr);
  PENSTOCK_ASSIGN_OR_RETURN(
      acceptor_,
      ConnectionAcceptor::Listen(options_.listen, AffordableConnections(options_.connections_max),
                                 rpc_limits::kServerKeepaliveTimeoutMs));
  grpc::EnableDefaultHealthCheckService(false);  // health.h says why
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  Configure(builder);
  acceptor_->AddTo(builder, options_.security.ForServer(options_.on_refused));
  for (const OwnedService& owned : services_) builder.RegisterService(owned.service.get());
  for (ServerExtension* extension : extensions_) extension->Register(builder);
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> owned_queues;
  std::vector<grpc::ServerCompletionQueue*> queues;
  for (int i = 0; i < options_.polling_threads; ++i) {
    owned_queues.push_back(builder.AddCompletionQueue());
    queues.push_back(owned_queues.back().get());
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::InternalError(
        absl::StrCat("gRPC did not start its server on ", options_.listen.ToString()));
  }
  address_ = acceptor_->address();
  for (const Callers callers : callers_) lanes_.emplace(callers, MakeLane(callers));
  calls_ = std::make_unique<CallHost>(queues.front(), lanes_);
  // Calls are asked for before anybody polls, and from then on by the thread that polls their queue: so what
  // is written for a call is seen by its thread without gRPC's locks, which ThreadSanitizer cannot see.
  for (const auto& post : methods_) post(*calls_);
  for (ServerExtension* extension : extensions_) extension->Start(queues);
  for (auto& queue : owned_queues) {
    pollers_.push_back(std::make_unique<CompletionPoller>(std::move(queue), 1, "rpc-poll"));
  }
  acceptor_->Start();
  if (!options_.health.has_value()) return absl::OkStatus();
  probes_ = std::make_unique<RpcServer>(
      RpcServerOptions{.listen = *options_.health, .handler_threads = 1});
  return Annotate(probes_->Start(), "health service");
}

void RpcServer::SetServing(bool serving) {
  health_.SetServing(serving);
  if (probes_ != nullptr) probes_->SetServing(serving);
}

void RpcServer::SetPartServing(const std::string& name, bool serving) {
  health_.SetPartServing(name, serving);
  if (probes_ != nullptr) probes_->SetPartServing(name, serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  if (pollers_.empty()) return;
  SetServing(false);
  acceptor_->Stop();
  calls_->Close();
  for (ServerExtension* extension : extensions_) extension->Close();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  for (ServerExtension* extension : extensions_) extension->AwaitEnd();
  calls_->AwaitEmpty();
  lanes_.clear();
  pollers_.clear();
  probes_.reset();
}

}  // namespace penstock
