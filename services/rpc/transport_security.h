// TransportSecurity: how a process proves who it is to its peers, and how they do to it.
//
// With certificates every connection is TLS both ways. A server lets in every holder of a certificate of its
// authorities and its trust domain, and each call is checked against the table of access.h before anything of it is
// read. A client speaks to the role it wants to speak to; host names are not looked at, since workers come and go
// at any address. Certificates are read again every second, so they can be replaced while connections live.
//
// In plain text callers are unknown and may call everything.
//
// Copies share their state. Thread safety: all methods may be called from any thread.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/security/identity.h"

namespace penstock {

class TransportSecurity {
 public:
  static TransportSecurity Plaintext();
  // `directory`: see credential_directory.h. Errors: those of CheckCredentials.
  static absl::StatusOr<TransportSecurity> Tls(const std::string& directory, absl::Time now);

  bool encrypted() const { return state_ != nullptr; }
  // Returns the identity in the certificate at the start. REQUIRES: encrypted().
  const Identity& identity() const;
  const std::string& directory() const;

  // `on_refused`, unless null, is called with every call that the table refuses, on a thread of gRPC's; it must not
  // block.
  std::shared_ptr<grpc::ServerCredentials> ForServer(
      std::function<void(const absl::Status&)> on_refused) const;
  // Makes those of a channel to a peer of `role`.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(Role role) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;  // null: plain text
};

// Returns the caller; none in plain text.
std::optional<Identity> CallerOf(const grpc::ServerContextBase& context);

}  // namespace penstock
