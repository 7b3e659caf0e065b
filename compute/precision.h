// Precision: the numbers that products are computed with (training.precision), and what follows for weights and messages.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "compute/tensor.h"

namespace penstock {

// In kBf16 the products with weight matrices, and those of attention where a back-end gains by it, read bf16 and sum in
// f32, with f32 master weights; the residual stream, norms, softmax, losses, gradients of weights and optimizer state stay
// f32. A device without fast bf16 products computes kBf16 as kF32. kFp8 is kBf16, except that the products of the ops linear,
// attention_branch and mlp_branch read fp8 (compute/fp8.h).
enum class Precision : uint8_t { kF32, kBf16, kFp8 };

// "f32", "bf16" or "fp8"; and back, nullopt for any other word.
constexpr absl::string_view PrecisionName(Precision precision) {
  constexpr absl::string_view kNames[] = {"f32", "bf16", "fp8"};
  return kNames[static_cast<int>(precision)];
}
constexpr std::optional<Precision> PrecisionOf(absl::string_view name) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16, Precision::kFp8}) {
    if (PrecisionName(precision) == name) return precision;
  }
  return std::nullopt;
}

// What Backend::CheckPrecision says of kFp8 on all other devices.
inline constexpr char kFp8Devices[] =
    "it has no fp8 products; GPUs of compute capability 8.9 and newer have (Ada, Hopper, "
    "Blackwell)";

// Whether each version of the weights has a mirror in bf16, which products read.
constexpr bool HasMirror(Precision precision) { return precision != Precision::kF32; }

// The type in which values cross from layer to layer (compute/pass_plan.h).
constexpr DType CrossingType(Precision precision) {
  return HasMirror(precision) ? DType::kBf16 : DType::kF32;
}

}  // namespace penstock
