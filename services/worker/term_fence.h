// TermFence: which coordinator a worker listens to, of several of which one leads.
//
// An epoch tells apart the runs of one job. The term in which a leader leads tells apart what two of them ask: a deposed one may
// know a run that its successor has taken over (coordinator/adoption.h), or a job whose workers train for another by now.
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
