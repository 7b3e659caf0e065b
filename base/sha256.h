// SHA-256 (OpenSSL): names files, weights and schedules by their content.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// Takes bytes piece by piece. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t size_bytes);
  void Update(absl::string_view bytes) { Update(bytes.data(), bytes.size()); }

  // The digest of all bytes so far as 64 lower-case hexadecimal digits. REQUIRES: called once.
  std::string HexDigest();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// The digest of `bytes`.
std::string Sha256Hex(absl::string_view bytes);

// Whether `text` is such a digest: 64 digits of 0-9 and a-f.
bool IsSha256Hex(absl::string_view text);

}  // namespace penstock
