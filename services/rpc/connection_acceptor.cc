#include "services/rpc/connection_acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/deadline.h"
#include "base/status.h"
#include "services/rpc/completion_poller.h"

namespace penstock {
namespace {

// For how long nothing is accepted when there is no room, or no descriptor.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

// The socket behind a descriptor; 0 if there is none.
uint64_t InodeOf(int fd) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// Accepted connections inherit it; gRPC sets the same on listeners of its own.
void TuneListener(int fd, int keepalive_timeout_ms) {
  const int on = 1;
  const auto timeout_ms = static_cast<unsigned int>(keepalive_timeout_ms);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Listen(
    const HostPort& address, int connections_max, int keepalive_timeout_ms) {
  PENSTOCK_CHECK(connections_max > 0);
  HostPort found;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int> opened, OpenListeners(address, found));
  std::vector<Descriptor> listeners;
  for (const int fd : opened) {
    TuneListener(fd, keepalive_timeout_ms);
    listeners.emplace_back(fd);
  }
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::move(found), std::move(listeners), connections_max));
}

ConnectionAcceptor::ConnectionAcceptor(HostPort address, std::vector<Descriptor> listeners,
                                       int connections_max)
    : address_(std::move(address)),
      connections_max_(static_cast<size_t>(connections_max)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listeners_(std::move(listeners)) {}

ConnectionAcceptor::~ConnectionAcceptor() { Stop(); }

void ConnectionAcceptor::AddTo(grpc::ServerBuilder& builder,
                               std::shared_ptr<grpc::ServerCredentials> credentials) {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  server_ =
      builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, std::move(credentials));
}

void ConnectionAcceptor::Start() {
  thread_ = std::thread([this] {
    NameThread("rpc-accept");
    Loop();
  });
}

void ConnectionAcceptor::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
    thread_.join();
  }
  listeners_.clear();
}

void ConnectionAcceptor::Loop() {
  for (;;) {
    const auto now = CondVar::Clock::now();
    const bool pausing = now < accept_again_;
    std::vector<pollfd> polled = {{.fd = wake_.get(), .events = POLLIN}};
    for (const Descriptor& listener : listeners_) {
      polled.push_back({.fd = pausing ? -1 : listener.get(), .events = POLLIN});
    }
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(accept_again_ - now);
    poll(polled.data(), polled.size(), pausing ? static_cast<int>(pause.count()) : -1);
    if (polled.front().revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) Accept(polled[i].fd);
    }
  }
}

void ConnectionAcceptor::Accept(int listener) {
  for (;;) {
    if (!HasRoom()) {
      accept_again_ = After(kAcceptPause);
      return;
    }
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // One that has hung up meanwhile is no reason to stop.
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) accept_again_ = After(kAcceptPause);
      return;
    }
    connections_[fd] = InodeOf(fd);
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener;
    connection.fd = fd;  // gRPC's from now on
    server_->HandleNewConnection(&connection);
  }
}

bool ConnectionAcceptor::HasRoom() {
  if (connections_.size() < connections_max_) return true;
  std::erase_if(connections_, [](const auto& connection) {
    return InodeOf(connection.first) != connection.second;
  });
  return connections_.size() < connections_max_;
}

int RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised = {limit.rlim_max, limit.rlim_max};
  if (limit.rlim_cur < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()));
}

int AffordableConnections(int wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const auto half = std::min<rlim_t>(limit.rlim_cur / 2, std::numeric_limits<int>::max());
  return std::max(1, std::min(wanted, static_cast<int>(half)));
}

}  // namespace penstock
