#include "services/rpc/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/deadline.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::Status CannotListen(const HostPort& address, absl::string_view reason) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address.ToString(), ": ", reason,
                   "; choose another address or port, or stop the program that uses it"));
}

// Binds and listens without SO_REUSEPORT: a second program shall not share the port unnoticed.
absl::StatusOr<int> Listen(const HostPort& address, const addrinfo& info) {
  constexpr int kBacklog = 128;
  const int fd =
      socket(info.ai_family, info.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info.ai_protocol);
  if (fd < 0) return CannotListen(address, std::strerror(errno));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int off = 0;
  if (address.IsWildcard()) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd, info.ai_addr, info.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  return CannotListen(address, std::strerror(error));
}

int PortOf(int fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

void SetPort(int port, const addrinfo& info) {
  const in_port_t number = htons(static_cast<uint16_t>(port));
  if (info.ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(info.ai_addr)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(info.ai_addr)->sin_port = number;
  }
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<Addresses> Resolve(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (code == 0) return Addresses(found, freeaddrinfo);
  return absl::FailedPreconditionError(
      absl::StrCat("address ", address.ToString(), ": ", gai_strerror(code)));
}

// Waits for one of `events`, or a hang-up. Returns which came; 0: none until then.
int PollUntil(int fd, short events, CondVar::Clock::time_point until) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - CondVar::Clock::now()).count();
    pollfd wanted = {.fd = fd, .events = events, .revents = 0};
    const int found = poll(&wanted, 1, static_cast<int>(std::max<int64_t>(0, left)));
    if (found > 0) return wanted.revents;
    if (found == 0 || errno != EINTR) return 0;
  }
}

// Connects once. Returns 0 if the connection stayed for a moment, else the system's error.
int TryToReach(const addrinfo& info, CondVar::Clock::time_point until) {
  // A connection that the system has accepted for a process that is just ending goes with it.
  constexpr absl::Duration kMoment = absl::Milliseconds(50);
  const int fd = socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  int error = connect(fd, info.ai_addr, info.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof(error);
    const bool answered = PollUntil(fd, POLLOUT, until) != 0;
    if (!answered || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = ETIMEDOUT;
  }
  if (error == 0 && PollUntil(fd, POLLRDHUP, After(kMoment)) != 0) error = ECONNRESET;
  close(fd);
  return error;
}

}  // namespace

std::string HostPort::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

bool HostPort::IsLoopback() const {
  in_addr address = {};
  const bool is_v4 = inet_pton(AF_INET, host.c_str(), &address) == 1;
  constexpr uint32_t kLoopbackNetwork = 127;
  return host == "localhost" || host == "::1" ||
         (is_v4 && ntohl(address.s_addr) >> 24 == kLoopbackNetwork);
}

bool HostPort::IsWildcard() const { return host == "0.0.0.0" || host == "::"; }

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("address '", text,
                   "': expected HOST:PORT with a port of 0 to 65535, such as 127.0.0.1:7070"));
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return bad;
  absl::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != absl::string_view::npos) {
    return bad;  // an IPv6 address needs its brackets
  }
  // A name of the system's resolver ends with the first zero byte, and would then be another one.
  const bool readable = std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '[' && c != ']';
  });
  HostPort result;
  result.host = std::string(host);
  const absl::string_view port = text.substr(colon + 1);
  if (host.empty() || !readable ||
      port.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(port, &result.port) || result.port > 65535) {
    return bad;
  }
  return result;
}

absl::StatusOr<std::vector<HostPort>> ParseHostPorts(absl::string_view text) {
  std::vector<HostPort> addresses;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    PENSTOCK_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(part));
    addresses.push_back(std::move(address));
  }
  return addresses;
}

absl::StatusOr<std::optional<HostPort>> ParseHostPortOrOff(absl::string_view text) {
  if (text == "off") return std::nullopt;
  PENSTOCK_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(text));
  return address;
}

absl::StatusOr<int> OpenListener(const HostPort& address, HostPort& found) {
  PENSTOCK_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address));
  PENSTOCK_ASSIGN_OR_RETURN(const int fd, Listen(address, *addresses));
  found = {address.host, PortOf(fd)};
  return fd;
}

absl::StatusOr<std::vector<int>> OpenListeners(const HostPort& address, HostPort& found) {
  if (address.IsWildcard()) {
    // A socket of IPv6 hears both, where there is IPv6.
    absl::StatusOr<int> both = OpenListener({"::", address.port}, found);
    if (!both.ok()) both = OpenListener({"0.0.0.0", address.port}, found);
    PENSTOCK_RETURN_IF_ERROR(both.status());
    found.host = address.host;
    return std::vector<int>{*both};
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address));
  found = address;
  std::vector<int> listeners;
  absl::Status refused;
  for (addrinfo* info = addresses.get(); info != nullptr; info = info->ai_next) {
    SetPort(found.port, *info);  // port 0: the one that the first has found
    const absl::StatusOr<int> fd = Listen(found, *info);
    if (fd.ok()) {
      listeners.push_back(*fd);
      found.port = PortOf(*fd);
    } else {
      refused.Update(fd.status());
    }
  }
  // A name may have addresses that this machine has not.
  if (listeners.empty()) return refused;
  return listeners;
}

absl::Status CheckCanListen(const HostPort& address) {
  HostPort found;
  PENSTOCK_ASSIGN_OR_RETURN(const int fd, OpenListener(address, found));
  close(fd);
  return absl::OkStatus();
}

absl::Status CheckCanConnect(const HostPort& address) {
  PENSTOCK_ASSIGN_OR_RETURN(const Addresses found, Resolve(address));
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int error = fd < 0 ? errno : 0;
  if (error == 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0) error = errno;
  if (fd >= 0) close(fd);
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot connect to ", address.ToString(), ": ", std::strerror(error)));
}

absl::Status ProbeListener(const HostPort& address, absl::Duration timeout) {
  constexpr absl::Duration kPause = absl::Milliseconds(20);
  const auto until = After(timeout);
  PENSTOCK_ASSIGN_OR_RETURN(const Addresses found, Resolve(address));
  int error = 0;
  do {
    bool all_refuse = true;
    for (const addrinfo* info = found.get(); info != nullptr; info = info->ai_next) {
      error = TryToReach(*info, until);
      if (error == 0) return absl::OkStatus();
      all_refuse = all_refuse && error == ECONNREFUSED;
    }
    if (all_refuse) {
      return absl::UnavailableError(absl::StrCat("nobody listens at ", address.ToString()));
    }
    absl::SleepFor(kPause);
  } while (CondVar::Clock::now() < until);
  return absl::DeadlineExceededError(absl::StrCat(address.ToString(), " did not answer within ",
                                                  absl::FormatDuration(timeout), " (",
                                                  std::strerror(error), ")"));
}

}  // namespace penstock
