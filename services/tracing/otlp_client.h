// OtlpClient: one request at a time to a collector, over HTTP/1.1.
//
// Thread safety: Post on one thread at a time, Cancel from any.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/tracing/otlp_endpoint.h"

namespace penstock {

struct OtlpClientOptions {
  OtlpEndpoint endpoint;
  std::string
      token_file;  // of a bearer token, read for every request, so that it can be replaced; empty: none
  std::string
      ca_file;  // authorities in PEM that sign the collector's certificate; empty: those of the system
};

// The outcome of a request.
struct OtlpReply {
  absl::Status status;  // not OK: no answer came
  int http_status = 0;  // of an answer
  std::optional<absl::Duration> retry_after;
  std::string body;  // of an answer; cut off beyond a few KiB
};

class OtlpClient {
 public:
  // The timeout of connecting (a name is looked up before, for as long as the system's resolver takes), of each
  // piece of the request that is sent, and of each of the answer that comes; and of an answer's body as a whole.
  static constexpr absl::Duration kTimeout = absl::Seconds(5);

  // Errors: InvalidArgument (a token for plain text at an address that others can reach, or one that is none; no
  // authorities in the file), those of reading the files.
  static absl::StatusOr<std::unique_ptr<OtlpClient>> Make(OtlpClientOptions options);
  ~OtlpClient();
  OtlpClient(const OtlpClient&) = delete;
  OtlpClient& operator=(const OtlpClient&) = delete;

  // Sends `json` and waits for the answer.
  OtlpReply Post(const std::string& json);
  // Ends a Post that is under way soon: at once unless it is still connecting.
  void Cancel();

 private:
  class Impl;
  explicit OtlpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
