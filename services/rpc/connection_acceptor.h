// ConnectionAcceptor: accepts the connections of a gRPC server in its place, and hands them over.
//
// gRPC's own listener takes as many connections as come, and stops listening for good when the process has no
// descriptor left for one (until gRPC 1.56): anybody who reaches the port could end the service. This one takes a
// bounded number, counts those that still live, lets the rest wait in the kernel's queue, and goes on after a failure.
//
//   Listen ──▶ AddTo the builder ──▶ the server starts ──▶ Start ──▶ Stop ──▶ the server shuts down
//
// One thread, which accepts and never waits for a client. Thread-compatible.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file_tree.h"
#include "base/mutex.h"
#include "services/rpc/address.h"

namespace penstock {

class ConnectionAcceptor {
 public:
  // Clients may connect from now on, and wait. `keepalive_timeout_ms`: for what was sent to be acknowledged.
  // REQUIRES: connections_max > 0.
  // Errors: FailedPrecondition if the address is taken or not ours.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(const HostPort& address,
                                                                    int connections_max,
                                                                    int keepalive_timeout_ms);
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // With the port that was found.
  const HostPort& address() const { return address_; }

  void AddTo(grpc::ServerBuilder& builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  // REQUIRES: the server has started.
  void Start();
  // Listens no more, and hands nothing over when it returns. Idempotent.
  void Stop();

 private:
  ConnectionAcceptor(HostPort address, std::vector<Descriptor> listeners, int connections_max);
  void Loop();
  // Takes what waits at `listener`, as far as there is room.
  void Accept(int listener);
  bool HasRoom();

  const HostPort address_;
  const size_t connections_max_;
  const Descriptor wake_;  // an eventfd: stop
  std::vector<Descriptor> listeners_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server_;
  std::thread thread_;

  // The thread only. Connections that were handed over: descriptor, and inode of the socket behind it then. gRPC does not
  // say when it closes one; the descriptor then is no socket any more, or another.
  std::map<int, uint64_t> connections_;
  CondVar::Clock::time_point accept_again_;
};

// Raises this process's limit of open descriptors as far as it may. main() calls it. Returns the
// limit.
int RaiseDescriptorLimit();

// Returns how many connections a server may take: `wanted`, or half of the descriptors that the process may have. The
// other half is for files and for what it connects to itself.
int AffordableConnections(int wanted);

}  // namespace penstock
