// EtcdLocation: which etcd, and where in it a cluster of Penstock keeps its state, as people write it:
//
//   etcd://10.0.0.7:2379,10.0.0.8:2379,10.0.0.9:2379/penstock/production
#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/rpc/address.h"

namespace penstock {

struct EtcdLocation {
  std::vector<HostPort> members;
  std::string prefix = "/penstock";  // begins with a slash and does not end with one

  std::string ToString() const;
};

// Returns whether the text names an etcd, and not a file.
bool IsEtcdLocation(absl::string_view text);

// Errors: InvalidArgument naming what is wrong and how it should look.
absl::StatusOr<EtcdLocation> ParseEtcdLocation(absl::string_view text);

// The PEM files of TLS to etcd. All empty: plain text.
struct EtcdTls {
  std::string authority;    // that signed the members' certificates
  std::string certificate;  // ours, and its key; both empty: none is shown
  std::string key;
};

// Reads them, once: a renewed certificate counts from the next start of the process on.
// Errors: InvalidArgument (a key without a certificate, or the other way round, or either without an authority; plain text
// to a member on another machine, unless `plaintext_allowed`), those of reading a file.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeEtcdCredentials(
    const EtcdTls& tls, const EtcdLocation& location, bool plaintext_allowed);

}  // namespace penstock
