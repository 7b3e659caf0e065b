// HostPort: where a server listens or is reached, as people write it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace penstock {

struct HostPort {
  std::string host;  // a name, an IPv4 address, or an IPv6 address without brackets
  int port = 0;      // 0: any free one

  std::string ToString() const;  // "127.0.0.1:7070", "[::1]:7070"
  // Returns whether the host means "all interfaces", which nobody can connect to.
  bool IsWildcard() const;
  // Returns whether only this machine can connect to it: localhost, 127.0.0.0/8 or ::1.
  bool IsLoopback() const;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Errors: InvalidArgument for anything but HOST:PORT with a port of 0 to 65535 and a host of visible ASCII letters.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// Reads addresses with commas between them; there is one at least. Errors: as above, naming the one that is wrong.
absl::StatusOr<std::vector<HostPort>> ParseHostPorts(absl::string_view text);

// Returns the address, or none for "off".
absl::StatusOr<std::optional<HostPort>> ParseHostPortOrOff(absl::string_view text);

// A socket that listens there, for a server of our own: non-blocking, the caller closes it. `found` gets
// the address with the port that was found. Errors: as CheckCanListen.
absl::StatusOr<int> OpenListener(const HostPort& address, HostPort& found);

// Opens listeners at all addresses that the host's name has on this machine, with one port; all interfaces are those
// of IPv4 and of IPv6.
absl::StatusOr<std::vector<int>> OpenListeners(const HostPort& address, HostPort& found);

// Checks that a server could listen there now.
// Errors: FailedPrecondition with the system's reason ("Address already in use") and what to do.
absl::Status CheckCanListen(const HostPort& address);

// Connects once and hangs up. Errors: Unavailable with the system's reason.
absl::Status CheckCanConnect(const HostPort& address);

// Finds out whether a program listens there, also one that is too busy, or frozen, to answer: the system connects for it.
// Connects, waits a moment to see whether the connection stays, and hangs up. Waits no longer than `timeout`, but for the
// system's resolver where the host is a name.
// Errors: Unavailable (nobody listens: all addresses of the host refuse), DeadlineExceeded (no answer in time, or none but
// connections that end at once), FailedPrecondition (the name has no address).
absl::Status ProbeListener(const HostPort& address, absl::Duration timeout);

}  // namespace penstock
