// The largest numbers that belong to no one key of a job; those of single keys stand in job.proto. All of them bound
// memory and keep products of sizes within 64 bits; they are no statement about what is sensible.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

inline constexpr size_t kJobNameCharactersMax = 64;
inline constexpr int64_t kByteTokens = 256;  // of the tokenizer "bytes"
// So that jobs of up to a million steps may save each of them. A run keeps some 100 bytes for each cut, in every process.
inline constexpr int64_t kCutsMax = 1'000'000;
inline constexpr int64_t kReplicatedWorkersMax = 1024;  // all replicas of all stages together
// Counted one by one before a run: 200 ns each.
inline constexpr int64_t kDrawsMax = 50'000'000;
inline constexpr size_t kScheduleBytesMax = 512 << 10;

}  // namespace penstock
