// Channels to other processes, with the settings all of Penstock uses: keepalive, limits on message
// sizes, no HTTP proxy, quick reconnection. Whom they trust stands in the credentials
// (transport_security.h).
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

namespace penstock {

// For control calls. Shares one connection with other channels to `address` with the same credentials.
std::shared_ptr<grpc::Channel> MakeControlChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// For one tensor stream: a connection of its own, large frames, a fixed window.
std::shared_ptr<grpc::Channel> MakeTensorChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace penstock
