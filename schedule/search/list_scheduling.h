// List scheduling: a worker that is free starts, of the passes whose input is there, the one that a rule
// prefers. A family of such rules gives the search orders to start from.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/search/problem.h"

namespace penstock {

struct ListRule {
  // By stage: microbatches between F and I at most (the warm-up).
  std::vector<int64_t> warm_up;
  bool forward_first = false;  // F before I, where both are ready
  // Where W comes: before both, between them, or only where neither is ready.
  enum class Weights : uint8_t { kFirst, kBetween, kLast } weights = Weights::kLast;
  // With kLast the worker rather waits for an F or I that is on its way and due within this part of a W.
  int64_t patience_percent = 0;
};

// All combinations of warm-ups (in proportion to those of 1F1B, and to the time until the gradient is back), and of
// priorities. Among them are those with a single microbatch on each stage of the first place, which end with any memory
// and channels.
std::vector<ListRule> ListRules(const StepProblem& problem);

// Nothing if the rule comes to a point where no worker can start anything (several stages on a worker).
std::optional<StepOrder> ListSchedule(const StepProblem& problem, const ListRule& rule);

}  // namespace penstock
