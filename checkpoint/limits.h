// Limits of everything that is read from a checkpoint: its files may be damaged or hostile.
#pragma once

#include <cstdint>

namespace penstock {

inline constexpr int64_t kSafetensorsHeaderBytesMax = int64_t{16} << 20;
inline constexpr int64_t kSafetensorsTensorsMax = 65'536;
inline constexpr int64_t kSafetensorsNameBytesMax = 512;
inline constexpr int64_t kSafetensorsDimensionsMax = 8;
inline constexpr int64_t kSafetensorsDimensionMax = int64_t{1} << 48;
inline constexpr int64_t kSafetensorsMetadataBytesMax = 64 << 10;

inline constexpr int64_t kManifestBytesMax = int64_t{64} << 20;
inline constexpr int64_t kManifestFilesMax = 1 << 17;
inline constexpr int64_t kCheckpointFileBytesMax = int64_t{64} << 30;

}  // namespace penstock
