#include "services/cli/timeline_export.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "job/job_trace.h"
#include "services/tracing/otlp_json.h"
#include "services/tracing/span_exporter.h"
#include "services/tracing/timeline_spans.h"

namespace penstock {
namespace {

constexpr size_t kBatchSpansMax = 512;

absl::Status Send(OtlpClient& client, const std::string& url, absl::Span<const TraceSpan> batch) {
  const OtlpReply reply = client.Post(
      OtlpJson({.name = "penstock", .version = PENSTOCK_VERSION, .instance = "timeline"}, batch));
  PENSTOCK_RETURN_IF_ERROR(reply.status);
  const std::string said = absl::StrCat(url, " answers ", Describe(reply));
  switch (JudgeReply(reply)) {
    case ExportVerdict::kLater:
      return absl::UnavailableError(said);
    case ExportVerdict::kRefused:
      return absl::FailedPreconditionError(said);
    case ExportVerdict::kTaken:
      break;
  }
  const OtlpPartialSuccess partial = ReadOtlpResponse(reply.body);
  if (partial.rejected_spans == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      url, " refuses ", partial.rejected_spans, " of ", batch.size(), " spans: ", partial.message));
}

}  // namespace

void AddTimelineExportOptions(CLI::App& app, OtlpFlags& flags) {
  AddOtlpFlags(app, flags, /*use_environment=*/false,
               "Send each action as a span to the OpenTelemetry collector at this URL");
}

absl::Status ExportTimeline(const OtlpFlags& flags, const v1::GetJobResponse& job,
                            const DrawnTimeline& drawn, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<OtlpClient> client, MakeOtlpClient(flags));
  if (client == nullptr) return absl::OkStatus();
  const std::vector<TraceSpan> spans = TimelineSpans(job, drawn);
  absl::Span<const TraceSpan> rest = spans;
  while (!rest.empty()) {
    const absl::Span<const TraceSpan> batch = rest.subspan(0, kBatchSpansMax);
    PENSTOCK_RETURN_IF_ERROR(Annotate(Send(*client, flags.url, batch), "--otlp"));
    rest.remove_prefix(batch.size());
  }
  console.err << spans.size() << " spans sent to " << flags.url << ", trace "
              << ToHex(JobTraceOf(job).trace_id) << "\n";
  return absl::OkStatus();
}

}  // namespace penstock
