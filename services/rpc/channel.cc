#include "services/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "services/rpc/limits.h"

namespace penstock {
namespace {

grpc::ChannelArguments CommonArguments(int message_bytes_max, int keepalive_timeout_ms) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, rpc_limits::kKeepaliveIntervalMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_timeout_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, rpc_limits::kReconnectBackoffMinMs);
  // Despite its name it bounds how long an attempt may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, rpc_limits::kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, rpc_limits::kReconnectBackoffMaxMs);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, rpc_limits::kMetadataBytesMax);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // http_proxy is not meant for cluster traffic
  // The sender's own zero-copy is slower on loopback and corrupts data in gRPC before 1.58.
  arguments.SetInt(GRPC_ARG_TCP_TX_ZEROCOPY_ENABLED, 0);
  arguments.SetMaxReceiveMessageSize(message_bytes_max);
  arguments.SetMaxSendMessageSize(message_bytes_max);
  return arguments;
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeControlChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  return grpc::CreateCustomChannel(
      address, credentials,
      CommonArguments(rpc_limits::kControlMessageBytesMax, rpc_limits::kKeepaliveTimeoutMs));
}

std::shared_ptr<grpc::Channel> MakeTensorChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments =
      CommonArguments(rpc_limits::kTensorMessageBytesMax, rpc_limits::kServerKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, rpc_limits::kTensorFrameBytesMax);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, rpc_limits::kTensorWindowBytes);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace penstock
