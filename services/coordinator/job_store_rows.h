// The digests of a JobStore's rows, and how damage is told.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/sha256.h"

namespace penstock {

inline constexpr absl::string_view kMendAdvice =
    "restore a backup of the state, or start once with --drop-damaged, which drops what is damaged "
    "and says what";

// Returns the 32 bytes of the SHA-256 over a row: its table, its key and its values, each with its length.
inline std::string RowDigest(absl::string_view table,
                             std::initializer_list<absl::string_view> fields) {
  Sha256 sha256;
  const auto add = [&sha256](absl::string_view text) {
    sha256.Update(absl::StrCat(text.size(), ":"));
    sha256.Update(text);
  };
  add(table);
  for (const absl::string_view field : fields) add(field);
  return absl::HexStringToBytes(sha256.HexDigest());
}

inline std::string JobDigest(int64_t number, absl::string_view job_id,
                             absl::string_view idempotency_key, absl::string_view record) {
  return RowDigest("jobs", {absl::StrCat(number), job_id, idempotency_key, record});
}
inline std::string TimelineDigest(absl::string_view job_id, absl::string_view timeline) {
  return RowDigest("timelines", {job_id, timeline});
}
// Goes into the seal: Open does not read timelines, so it knows the digest of a row, and not whether its key is right.
inline std::string TimelineSeal(absl::string_view job_id, absl::string_view digest) {
  return RowDigest("timeline seals", {job_id, digest});
}
inline std::string EventDigest(absl::string_view job_id, int64_t sequence, int64_t previous,
                               absl::string_view event) {
  return RowDigest("events", {job_id, absl::StrCat(sequence), absl::StrCat(previous), event});
}
inline std::string HeadDigest(absl::string_view job_id, int64_t last_sequence) {
  return RowDigest("event_heads", {job_id, absl::StrCat(last_sequence)});
}
inline std::string LayerTimesDigest(absl::string_view key, absl::string_view times) {
  return absl::BytesToHexString(RowDigest("layer_times", {key, times}));
}

inline std::string SealDigest(int64_t changes, int64_t jobs, absl::string_view jobs_digest,
                              int64_t timelines, absl::string_view timelines_digest) {
  return RowDigest("seal", {absl::StrCat(changes), absl::StrCat(jobs), jobs_digest,
                            absl::StrCat(timelines), timelines_digest});
}

// Adds a row to the digest of a set of rows, or takes it out: the exclusive or of all of them.
inline void ToggleRow(absl::string_view digest, std::string& set) {
  set.resize(32, '\0');
  for (size_t i = 0; i < set.size() && i < digest.size(); ++i) {
    set[i] = static_cast<char>(set[i] ^ digest[i]);
  }
}

// DataLoss: "PATH: table jobs, job gpt-1: its record ...; restore a backup".
inline absl::Status DamagedRow(absl::string_view path, absl::string_view table,
                               absl::string_view key, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat(path, ": table ", table, ", ", key, ": ", what, "; ", kMendAdvice));
}

}  // namespace penstock
