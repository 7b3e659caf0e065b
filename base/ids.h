// Typed ids: numbers that cannot be passed for one another.
//
// All count from 0. A MicrobatchId is global: microbatch m of step t of a job with M microbatches a
// step has id t * M + m, so one number says which samples a tensor belongs to.
#pragma once

#include <compare>
#include <cstdint>
#include <utility>

namespace penstock {

template <typename Tag, typename Integer>
struct Id {
  Integer value = 0;

  Id() = default;
  explicit constexpr Id(Integer v) : value(v) {}

  friend constexpr auto operator<=>(const Id&, const Id&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.value);
  }
};

using StageId = Id<struct StageTag, int32_t>;
using WorkerId = Id<struct WorkerTag, int32_t>;
// A set of stages that hold the same parameters (tied embeddings, replicas).
using GroupId = Id<struct GroupTag, int32_t>;
using MicrobatchId = Id<struct MicrobatchTag, int64_t>;

}  // namespace penstock
