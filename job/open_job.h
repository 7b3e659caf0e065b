// An open job leaves its method (pipeline.method: auto), the order of its step (pipeline.method: searched, without a
// schedule) or the split of its layers to the coordinator.
//
// A job whose method is open lacks the defaults that depend on the method until it is chosen. Its draft, the same job
// with the default method (or, for several stages on a worker, a plain one that has them), has everything that does not
// depend on method and order (model, data, steps).
//
// Pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "job/resolve.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

inline constexpr char kOpenMethod[] = "auto";
inline constexpr double kRaceSecondsDefault = 120;
// The steps that a search for an order looks at, so that what a worker does while others still drain counts.
inline constexpr int64_t kSearchedSteps = 3;

bool MethodIsOpen(const v1::JobSpec& spec);
// Whether an order has to be found for its times.
bool OrderIsOpen(const v1::JobSpec& spec);

// Returns whether an order that was found earlier puts stages where the job, whose draft is `draft`, has them: as many on
// each worker, with as many replicas. `ordered`: the job with that order.
bool HasPlacementOf(const ResolvedJob& draft, const ResolvedJob& ordered, int64_t stages);

// Returns whether the split needs measurements. REQUIRES: `job` is `spec` or its draft, resolved.
bool SplitIsOpen(const v1::JobSpec& spec, const ResolvedJob& job);

// `spec`, or with an open method or order its draft, with all defaults.
v1::JobSpec DraftOf(const v1::JobSpec& spec);

// Fills in the defaults, with an open method those that do not depend on it.
void FillKnownDefaults(v1::JobSpec& spec);

// The job, or its draft. Errors: those of ResolveJob; InvalidArgument naming the key if a job with an open method says
// more of its pipeline than the number of stages, one with an open order what no order is searched for (more microbatches
// than a search takes, too), or `planning` what a job with a method has no use for.
absl::StatusOr<ResolvedJob> ResolveSubmitted(const v1::JobSpec& spec);

}  // namespace penstock
