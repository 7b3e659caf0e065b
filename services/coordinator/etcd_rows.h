// How the rows of an EtcdStore are named. Rows are keys without the cluster's prefix and its slash.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/sha256.h"

namespace penstock::etcd_rows {

inline constexpr char kVersion[] = "version";
inline constexpr char kTurn[] = "turn";

// Numbers stand with leading zeros, so that their order is that of the keys.
inline std::string Ordered(int64_t number) { return absl::StrFormat("%020d", number); }

// Returns the first key behind all that begin with `prefix`, which ends with a slash.
inline std::string EndOf(absl::string_view prefix) {
  std::string end(prefix);
  end.back() = '/' + 1;
  return end;
}

// What the rows of several kinds begin with.
inline constexpr char kAllLayerTimes[] = "times/";
inline constexpr char kAllParts[] = "parts/";

inline std::string Job(absl::string_view job_id) { return absl::StrCat("jobs/", job_id); }
inline std::string Head(absl::string_view job_id) { return absl::StrCat("heads/", job_id); }
inline std::string Timeline(absl::string_view job_id) { return absl::StrCat("timelines/", job_id); }
inline std::string Events(absl::string_view job_id) { return absl::StrCat("events/", job_id, "/"); }
inline std::string Event(absl::string_view job_id, int64_t sequence) {
  return absl::StrCat(Events(job_id), Ordered(sequence));
}
// A key of layer times may be long and anything, so its hash stands for it.
inline std::string HashOf(absl::string_view key) { return Sha256Hex(key); }
inline std::string LayerTimes(int64_t number, absl::string_view hash) {
  return absl::StrCat(kAllLayerTimes, Ordered(number), "/", hash);
}
// All parts of a row, of one of its values, and one of them.
inline std::string Parts(absl::string_view row) { return absl::StrCat(kAllParts, row, "/"); }
inline std::string Parts(absl::string_view row, absl::string_view digest_hex) {
  return absl::StrCat(Parts(row), digest_hex, "/");
}
inline std::string Part(absl::string_view row, absl::string_view digest_hex, int64_t number) {
  return absl::StrCat(Parts(row, digest_hex), Ordered(number));
}

}  // namespace penstock::etcd_rows
