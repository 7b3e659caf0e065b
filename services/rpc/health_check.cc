#include "services/rpc/health_check.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "services/rpc/client.h"
#include "services/rpc/limits.h"

namespace penstock {

absl::Status CheckHealth(const HostPort& address, absl::Duration timeout, const std::string& part) {
  using grpc::health::v1::Health;
  using Response = grpc::health::v1::HealthCheckResponse;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(rpc_limits::kControlMessageBytesMax);
  const std::string peer = address.ToString();
  const std::unique_ptr<Health::Stub> stub = Health::NewStub(
      grpc::CreateCustomChannel(peer, grpc::InsecureChannelCredentials(), arguments));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(part);
  PENSTOCK_ASSIGN_OR_RETURN(const Response response,
                            Call(peer, *stub, &Health::Stub::Check, request, timeout));
  if (response.status() == Response::SERVING) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      peer, " says ", Response::ServingStatus_Name(response.status()), ", not SERVING"));
}

}  // namespace penstock
