// TermFence: which coordinator a worker listens to, of several of which one leads.
//
// The epoch of a run tells apart what two leaders have prepared, but not what they ask of a run that the later one has taken over
// from the earlier one (coordinator/adoption.h): that is told apart by the term in which they lead.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace penstock {

class TermFence {
 public:
  // The worker has registered with a coordinator that leads in this term; 0: there are no terms. A term below the one before
  // is that of a leader whose store was put back.
  void OnRegistered(int64_t term) { seen_.store(term); }

  // Errors: Aborted if the worker has registered with a later leader. Coordinators of older builds, and those that are alone,
  // name no term.
  absl::Status Check(int64_t term) const {
    const int64_t seen = seen_.load();
    if (term == 0 || term >= seen) return absl::OkStatus();
    return absl::AbortedError(
        absl::StrCat("asked in term ", term, "; a coordinator of term ", seen, " leads by now"));
  }

 private:
  std::atomic<int64_t> seen_{0};
};

}  // namespace penstock
