// HttpLimits: everything an HTTP client could make large or slow, in one place.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace penstock {

struct HttpLimits {
  // Open connections. Beyond it the one that has been idle longest goes; if none is idle, the oldest that has not sent a
  // whole request; if all have, new ones wait to be accepted.
  int connections_max = 64;
  // Bound on a request's line and headers; requests have no body.
  size_t head_bytes_max = 16 << 10;
  int headers_max = 64;
  // From the first byte of a request (of the first one: from the connection) to the end of its head.
  absl::Duration request_timeout = absl::Seconds(5);
  // For the client to take the answer.
  absl::Duration write_timeout = absl::Seconds(20);
  // Between requests of one connection; longer than the usual 15 s between scrapes of Prometheus.
  absl::Duration idle_timeout = absl::Seconds(60);
  // The client has this long to hang up after the last answer.
  absl::Duration close_timeout = absl::Seconds(1);
  // An older connection ends with its next answer, so that its client shows its certificate again.
  absl::Duration connection_age = absl::Minutes(5);
  // Threads on which handlers run.
  int handler_threads = 3;
};

}  // namespace penstock
