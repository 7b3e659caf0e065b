// Channels to other processes, with the settings all of Penstock uses: keepalive, limits on message
// sizes, no HTTP proxy, quick reconnection. Plain text: ports are bound to the configured interface.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace penstock {

// For control calls. Shares one connection with other channels to `address`.
std::shared_ptr<grpc::Channel> MakeControlChannel(const std::string& address);

// For one tensor stream: a connection of its own, large frames, a fixed window.
std::shared_ptr<grpc::Channel> MakeTensorChannel(const std::string& address);

}  // namespace penstock
