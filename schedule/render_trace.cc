#include "schedule/render_trace.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace penstock {
namespace {

// Transfers of one sender may overlap, one thread for each direction and stage keeps them apart.
constexpr int32_t kFirstTransferThread = 100;

// Sums and checkpoints, which few schedules have, come after all the others.
constexpr int32_t kFirstRoundThread = 1 << 20;

int32_t ThreadOf(const Span& span) {
  if (span.lane != Lane::kTransfer) return static_cast<int32_t>(span.lane) + 1;
  const Op op = span.action.op;
  const bool of_rounds = op == Op::kSendCheckpoint || op == Op::kSendSum;
  const bool second = op == Op::kSendGradient || op == Op::kSendSum;
  return (of_rounds ? kFirstRoundThread : kFirstTransferThread) + 2 * span.action.index + second;
}

absl::string_view TransferName(Op op) {
  if (op == Op::kSendGradient) return "gradients";
  if (op == Op::kSendCheckpoint) return "inputs";
  return op == Op::kSendSum ? "sums" : "activations";
}

std::string ThreadName(const Span& span) {
  if (span.lane != Lane::kTransfer) return std::string(LaneName(span.lane));
  return absl::StrCat(TransferName(span.action.op), " of stage ", span.action.index);
}

// Microseconds, the unit of the format. Every text but the title is made of letters, digits and spaces, so nothing
// needs escaping.
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

void WriteTitle(std::string title, Writer& writer) {
  std::erase_if(title, [](unsigned char c) { return c < ' ' || c == '"' || c == '\\'; });
  if (title.empty()) return;
  writer.Event(absl::StrFormat(R"("ph":"i","s":"g","pid":0,"tid":0,"ts":0,"name":"%s")", title));
}

void WriteNames(const Timeline& timeline, Writer& writer) {
  for (int32_t worker = 0; worker < timeline.workers; ++worker) {
    writer.Event(absl::StrFormat(
        R"("ph":"M","pid":%d,"name":"process_name","args":{"name":"worker %d"})", worker, worker));
  }
  std::set<std::pair<int32_t, int32_t>> named;
  for (const Span& span : timeline.spans) {
    const int32_t thread = ThreadOf(span);
    if (!named.insert({span.worker.value, thread}).second) continue;
    writer.Event(
        absl::StrFormat(R"("ph":"M","pid":%d,"tid":%d,"name":"thread_name","args":{"name":"%s"})",
                        span.worker.value, thread, ThreadName(span)));
    writer.Event(absl::StrFormat(
        R"("ph":"M","pid":%d,"tid":%d,"name":"thread_sort_index","args":{"sort_index":%d})",
        span.worker.value, thread, thread));
  }
}

void WriteSpan(const Span& span, int64_t origin_ns, Writer& writer) {
  std::string event =
      absl::StrFormat(R"("ph":"X","pid":%d,"tid":%d,"ts":%s,"dur":%s,"cat":"%s","name":"%s")",
                      span.worker.value, ThreadOf(span), Us(span.start_ns - origin_ns),
                      Us(span.duration_ns()), LaneName(span.lane), ToString(span.action));
  if (span.lane == Lane::kWait) {
    absl::StrAppend(&event, R"(,"args":{"waits_for":")", WaitName(span.wait), "\"}");
  }
  writer.Event(event);
}

// Arrows from each F to the F of the next stage, and from each I to the I that takes its gradient: of the stage
// before, or, there and back, of the next.
class Arrows {
 public:
  explicit Arrows(const Timeline& timeline) {
    for (const Span& span : timeline.spans) {
      if (span.lane == Lane::kCompute && HasMicrobatch(span.action.op)) spans_[Key(span)] = &span;
    }
  }

  void Write(int64_t origin_ns, Writer& writer) const {
    int64_t id = 0;
    for (const auto& [key, from] : spans_) {
      const bool forward = from->action.op == Op::kForward;
      if (!forward && from->action.op != Op::kBackwardInput) continue;
      auto to = Neighbour(*from, forward ? 1 : -1);
      if (!forward && (to == spans_.end() || to->second->start_ns < from->start_ns)) {
        to = Neighbour(*from, 1);
        if (to != spans_.end() && to->second->start_ns < from->start_ns) continue;
      }
      if (to == spans_.end()) continue;
      const absl::string_view name = forward ? "activation" : "gradient";
      ++id;
      // An arrow starts within its span, hence one nanosecond before the end.
      WriteEnd("s", *from, std::max(from->start_ns, from->end_ns - 1) - origin_ns, name, id,
               writer);
      WriteEnd("f", *to->second, to->second->start_ns - origin_ns, name, id, writer);
    }
  }

 private:
  using SpanKey = std::tuple<Op, int32_t, int64_t>;
  using SpanMap = std::map<SpanKey, const Span*>;

  // The same pass of the stage whose number is greater by `step`.
  SpanMap::const_iterator Neighbour(const Span& span, int32_t step) const {
    const Action& action = span.action;
    return spans_.find({action.op, action.index + step, action.microbatch});
  }
  static SpanKey Key(const Span& span) {
    return {span.action.op, span.action.index, span.action.microbatch};
  }

  static void WriteEnd(absl::string_view phase, const Span& span, int64_t ns,
                       absl::string_view name, int64_t id, Writer& writer) {
    writer.Event(absl::StrFormat(
        R"("ph":"%s","bp":"e","pid":%d,"tid":%d,"ts":%s,"cat":"flow","name":"%s","id":%d)", phase,
        span.worker.value, ThreadOf(span), Us(ns), name, id));
  }

  SpanMap spans_;
};

}  // namespace

std::string RenderTrace(const Timeline& timeline, const std::string& title) {
  const int64_t origin_ns = timeline.start_ns();
  Writer writer;
  WriteTitle(title, writer);
  WriteNames(timeline, writer);
  for (const Span& span : timeline.spans) WriteSpan(span, origin_ns, writer);
  Arrows(timeline).Write(origin_ns, writer);
  return writer.Finish();
}

}  // namespace penstock
