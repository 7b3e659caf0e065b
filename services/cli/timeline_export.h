// Sends what a timeline holds to an OpenTelemetry collector (`penstock timeline --otlp`).
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/cluster.pb.h"
#include "schedule/drawn_timeline.h"
#include "services/cli/console.h"
#include "services/tracing/otlp_flags.h"

namespace penstock {

// Declares --otlp and its companions. The flag names the collector: the environment does not.
void AddTimelineExportOptions(CLI::App& app, OtlpFlags& flags);

// Without effect if no collector is named. Says on the error stream what was sent.
// Errors: those of MakeOtlpClient; Unavailable (no answer, or it was asked to come later); FailedPrecondition (refused).
absl::Status ExportTimeline(const OtlpFlags& flags, const v1::GetJobResponse& job,
                            const DrawnTimeline& drawn, Console& console);

}  // namespace penstock
