#include "schedule/render_trace.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "schedule/message_flows.h"

namespace penstock {
namespace {

// Transfers of one sender may overlap, one thread for each direction and stage keeps them apart.
constexpr int32_t kFirstTransferThread = 100;

// Sums and checkpoints, which few schedules have, come after all the others.
constexpr int32_t kFirstRoundThread = 1 << 20;

// Behind those of all lanes; a worker's reductions come one after the other.
constexpr int32_t kReductionThread = 50;

int32_t ThreadOf(const Span& span) {
  if (span.lane != Lane::kTransfer) return static_cast<int32_t>(span.lane) + 1;
  const ActionKind kind = span.action.kind;
  if (kind == ActionKind::kReduce) return kReductionThread;
  const bool of_rounds = kind == ActionKind::kSendCheckpoint || kind == ActionKind::kSendSum;
  const bool second = kind == ActionKind::kSendGradient || kind == ActionKind::kSendSum;
  return (of_rounds ? kFirstRoundThread : kFirstTransferThread) + 2 * span.action.index + second;
}

absl::string_view TransferName(ActionKind kind) {
  if (kind == ActionKind::kSendGradient) return "gradients";
  if (kind == ActionKind::kSendCheckpoint) return "inputs";
  if (kind == ActionKind::kSendRequest) return "requests";
  if (kind == ActionKind::kSendWeights) return "weights";
  return kind == ActionKind::kSendSum ? "sums" : "activations";
}

std::string ThreadName(const Span& span) {
  if (span.lane != Lane::kTransfer) return std::string(LaneName(span.lane));
  if (span.action.kind == ActionKind::kReduce) return "reductions";
  return absl::StrCat(TransferName(span.action.kind), " of stage ", span.action.index);
}

// Microseconds, the unit of the format.
std::string Us(int64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

class Writer {
 public:
  void Event(absl::string_view fields) {
    absl::StrAppend(&json_,
                    json_.empty() ? "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" : ",\n", "{",
                    fields, "}");
  }
  std::string Finish() {
    if (json_.empty()) return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[]}\n";
    return absl::StrCat(json_, "\n]}\n");
  }

 private:
  std::string json_;
};

// Texts that come from outside; all others are made of letters, digits and spaces, so that nothing needs escaping.
std::string Clean(std::string text) {
  std::erase_if(text, [](unsigned char c) { return c < ' ' || c == '"' || c == '\\'; });
  return text;
}

void WriteTitle(const std::string& title, Writer& writer) {
  const std::string clean = Clean(title);
  if (clean.empty()) return;
  writer.Event(absl::StrFormat(R"("ph":"i","s":"g","pid":0,"tid":0,"ts":0,"name":"%s")", clean));
}

// One of the timelines, whose workers are processes from `first_process` on.
struct Drawing {
  const DrawnTimeline& drawn;
  const Timeline& timeline;
  int32_t first_process = 0;
  int64_t origin_ns = 0;

  int32_t ProcessOf(WorkerId worker) const { return first_process + worker.value; }
};

void WriteNames(const Drawing& drawing, bool is_one_of_many, Writer& writer) {
  const Timeline& timeline = drawing.timeline;
  for (int32_t worker = 0; worker < timeline.workers; ++worker) {
    const int32_t process = drawing.ProcessOf(WorkerId(worker));
    const std::string name = absl::StrCat(is_one_of_many ? drawing.drawn.name + ": " : "",
                                          RowName(drawing.drawn, worker));
    writer.Event(absl::StrFormat(R"("ph":"M","pid":%d,"name":"process_name","args":{"name":"%s"})",
                                 process, Clean(name)));
    writer.Event(
        absl::StrFormat(R"("ph":"M","pid":%d,"name":"process_sort_index","args":{"sort_index":%d})",
                        process, process));
  }
  std::set<std::pair<int32_t, int32_t>> named;
  for (const Span& span : timeline.spans) {
    const int32_t thread = ThreadOf(span);
    if (!named.insert({span.worker.value, thread}).second) continue;
    writer.Event(
        absl::StrFormat(R"("ph":"M","pid":%d,"tid":%d,"name":"thread_name","args":{"name":"%s"})",
                        drawing.ProcessOf(span.worker), thread, ThreadName(span)));
    writer.Event(absl::StrFormat(
        R"("ph":"M","pid":%d,"tid":%d,"name":"thread_sort_index","args":{"sort_index":%d})",
        drawing.ProcessOf(span.worker), thread, thread));
  }
}

void WriteSpan(const Span& span, const Drawing& drawing, Writer& writer) {
  std::string event = absl::StrFormat(
      R"("ph":"X","pid":%d,"tid":%d,"ts":%s,"dur":%s,"cat":"%s","name":"%s")",
      drawing.ProcessOf(span.worker), ThreadOf(span), Us(span.start_ns - drawing.origin_ns),
      Us(span.duration_ns()), LaneName(span.lane), ToString(span.action));
  if (span.lane == Lane::kWait) {
    absl::StrAppend(&event, R"(,"args":{"waits_for":")", WaitName(span.wait), "\"}");
  }
  writer.Event(event);
}

void WriteArrowEnd(absl::string_view phase, const Span& span, int64_t ns, absl::string_view name,
                   int64_t id, const Drawing& drawing, Writer& writer) {
  writer.Event(absl::StrFormat(
      R"("ph":"%s","bp":"e","pid":%d,"tid":%d,"ts":%s,"cat":"flow","name":"%s","id":%d)", phase,
      drawing.ProcessOf(span.worker), ThreadOf(span), Us(ns - drawing.origin_ns), name, id));
}

void WriteArrow(const MessageFlow& flow, int64_t id, const Drawing& drawing, Writer& writer) {
  const Span& from = *flow.giver;
  const Span& to = *flow.taker;
  const absl::string_view name =
      from.action.kind == ActionKind::kForward ? "activation" : "gradient";
  // An arrow starts within its span, hence one nanosecond before the end, and never goes back in time.
  const int64_t end_ns = std::clamp(from.end_ns - 1, from.start_ns, to.start_ns);
  WriteArrowEnd("s", from, end_ns, name, id, drawing, writer);
  WriteArrowEnd("f", to, to.start_ns, name, id, drawing, writer);
}

}  // namespace

std::string RenderTrace(absl::Span<const DrawnTimeline> drawn, const std::string& title) {
  const int64_t origin_ns = WindowOf(drawn).start_ns;
  Writer writer;
  WriteTitle(title, writer);
  int32_t processes = 0;
  int64_t arrows = 0;
  for (const DrawnTimeline& one : drawn) {
    const Drawing drawing = {one, *one.timeline, processes, origin_ns};
    WriteNames(drawing, drawn.size() > 1, writer);
    for (const Span& span : one.timeline->spans) WriteSpan(span, drawing, writer);
    for (const MessageFlow& flow : MessageFlowsOf(*one.timeline, one.topology)) {
      WriteArrow(flow, ++arrows, drawing, writer);
    }
    processes += one.timeline->workers;
  }
  return writer.Finish();
}

std::string RenderTrace(const Timeline& timeline, const std::string& title) {
  return RenderTrace({{.timeline = &timeline}}, title);
}

}  // namespace penstock
