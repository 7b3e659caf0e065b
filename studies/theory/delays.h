// Delays: how late an update is, in block updates of the whole model, and the many ways to count it.
//
// Every backward appends one update of its stage's block to a single history. The delay of an update with
// respect to stage r is how much longer the history has become since the forward, on stage r, of the
// microbatch it belongs to. Within a tick several stages work at once, and what "since" means there is a
// convention; they differ by terms below S. arXiv 2606.03498 proves floor(S^2 - S/2) for the maximum
// (proposition 4.1, appendix C).
//
// Pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "studies/theory/ticks.h"

namespace penstock {

enum class DelayConvention : uint8_t {
  kReplay,            // A: the tick replayed in ascending stage order, by the authors' code
  kReplayDescending,  // A': in descending order
  kReadAtStart,       // B: reads at the start of the forward's tick, writes in ascending order
  kReadAtEnd,         // C: reads at the end of the forward's tick
  kTickToTick,        // D: reads and writes at the start of their ticks; the paper's lemma C.1
  kOwnBlock,          // E: as A, the updated block alone
  kLocal,             // F: updates of the block's own stage alone: staleness as in docs/glossary.md
};
inline constexpr std::array<DelayConvention, 7> kDelayConventions = {
    DelayConvention::kReplay,    DelayConvention::kReplayDescending, DelayConvention::kReadAtStart,
    DelayConvention::kReadAtEnd, DelayConvention::kTickToTick,       DelayConvention::kOwnBlock,
    DelayConvention::kLocal};
// "A", "A'", ..., and what it means in a few words.
absl::string_view ConventionLetter(DelayConvention convention);
absl::string_view ConventionMeaning(DelayConvention convention);

struct Delays {
  int64_t max = 0;
  double mean = 0.0;
  int64_t count = 0;  // (update, stage) pairs
};

// Over the steady state: microbatches from half of the sequence on, without the last 2S.
Delays CountDelays(const TickSequence& sequence, DelayConvention convention);
// Returns a number of microbatches with a steady state that CountDelays can count.
int64_t SteadyMicrobatches(int32_t stages);

// Returns the result of CountDelays for PipeDream with any number of stages. Derived from the shape of a
// tick of the steady state (S/2 stages run backwards; for odd S (S-1)/2 and (S+1)/2 in turn) and
// confirmed by the tests; A, D and F are the paper's.
Delays PipeDreamDelays(int32_t stages, DelayConvention convention);

}  // namespace penstock
