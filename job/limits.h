// The largest numbers a job may hold. They bound memory and keep products of sizes within 64 bits;
// they are no statement about what is sensible. Those of a model are its own (model/gpt.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

inline constexpr size_t kJobNameCharactersMax = 64;
inline constexpr int64_t kByteTokens = 256;  // of the tokenizer "bytes"
inline constexpr int64_t kStepsMax = 100'000'000;
inline constexpr int64_t kBatchMax = 1 << 20;
inline constexpr int64_t kCutsMax = 10'000;
inline constexpr int64_t kValidationBatchesMax = 1 << 20;
inline constexpr int64_t kCheckpointsKeptMax = 10'000;
inline constexpr int64_t kThreadsMax = 1024;
inline constexpr int64_t kStagesMax = 256;
inline constexpr int64_t kStageLayersMax = 1'000'000;
inline constexpr int64_t kReplicasMax = 64;             // of a stage or a model
inline constexpr int64_t kReplicatedWorkersMax = 1024;  // all replicas of all stages together
inline constexpr int64_t kInFlightFactorMax = 16;
// An average that keeps more of itself at each update does not move within a run; roots of a number that is
// nearly 1 would round to 1.
inline constexpr double kMotionDecayMax = 0.9999;
inline constexpr double kDriftBoundMax = 100.0;
inline constexpr int64_t kDriftStepsMax = 10'000;
// Counted one by one before a run: 200 ns each.
inline constexpr int64_t kDrawsMax = 50'000'000;
inline constexpr int64_t kDrawnDelayMax = 100'000;
inline constexpr size_t kScheduleBytesMax = 512 << 10;

}  // namespace penstock
