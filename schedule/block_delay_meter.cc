#include "schedule/block_delay_meter.h"

#include <algorithm>
#include <utility>

#include "schedule/block_draws.h"

namespace penstock {
namespace {

// The spans that matter, by worker, each worker's in their order.
std::vector<std::vector<Span>> PassesByWorker(const Timeline& timeline, int32_t stages) {
  std::vector<std::vector<Span>> workers(timeline.workers);
  for (const Span& span : timeline.spans) {
    if (MakesBlockEvents(span, stages)) workers[span.worker.value].push_back(span);
  }
  for (std::vector<Span>& spans : workers) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
  }
  return workers;
}

int64_t EventNs(const Span& span) {
  return span.action.kind == ActionKind::kForward ? span.start_ns : span.end_ns;
}

}  // namespace

BlockDelayMeter::BlockDelayMeter(int32_t stages, int32_t pipelines,
                                 std::vector<MicrobatchRange> ranges)
    : stages_(stages),
      depth_(stages / pipelines),
      ranges_(std::move(ranges)),
      counter_(stages, stages / pipelines),
      reader_(stages) {}

const MicrobatchRange* BlockDelayMeter::RangeOf(int64_t microbatch) const {
  const auto after = std::upper_bound(
      ranges_.begin(), ranges_.end(), microbatch,
      [](int64_t value, const MicrobatchRange& range) { return value < range.first; });
  if (after == ranges_.begin() || microbatch >= std::prev(after)->end()) return nullptr;
  return &*std::prev(after);
}

bool BlockDelayMeter::Counts(int64_t microbatch) const {
  const MicrobatchRange* range = RangeOf(microbatch);
  return range != nullptr && microbatch >= range->first + 2 * depth_ &&
         microbatch < range->end() - 2 * depth_;
}

void BlockDelayMeter::Add(const Timeline& piece) {
  std::vector<std::vector<Span>> workers = PassesByWorker(piece, stages_);
  const auto idle = [](const std::vector<Span>& spans) { return spans.empty(); };
  if (workers.empty() || std::any_of(workers.begin(), workers.end(), idle)) return;

  places_.resize(workers.size());
  bool missing = false;
  int64_t begin_ns =
      0;  // what was before is not known of every worker; of use where spans are missing
  int64_t end_ns = workers.front().back().end_ns;
  for (size_t i = 0; i < workers.size(); ++i) {
    std::vector<Span>& spans = workers[i];
    end_ns = std::min(end_ns, spans.back().end_ns);
    const auto taken = std::find_if(spans.begin(), spans.end(), [&](const Span& span) {
      return places_[i].pass.has_value() && span.action == *places_[i].pass;
    });
    if (taken == spans.end()) {
      missing = true;
      begin_ns = std::max(begin_ns, spans.front().start_ns);
    } else {
      const int64_t later = spans.end() - taken - 1;
      spans.erase(spans.begin(), taken + 1 + std::min(places_[i].spans_after, later));
      if (!spans.empty()) begin_ns = std::max(begin_ns, spans.front().start_ns);
    }
  }
  if (missing) {
    counter_.Forget();
    reader_.Forget();
  }
  std::vector<BlockEvent> events;
  for (size_t i = 0; i < workers.size(); ++i) {
    for (const Span& span : workers[i]) {
      if (EventNs(span) > end_ns) break;
      if (span.action.kind == ActionKind::kUpdate) {
        ++places_[i].spans_after;
      } else {
        places_[i] = {.pass = span.action};
      }
      if (!missing || span.start_ns >= begin_ns) reader_.Add(span, events);
    }
  }
  SortEvents(events);
  for (const BlockEvent& event : events) counter_.Add(event, Counts(event.microbatch));
  until_ns_ = end_ns;
}

void BlockDelayMeter::AddSampled(const WeightPolicy& policy, int64_t end) {
  const BlockDraws draws(policy.seed, policy.lag, stages_);
  for (int64_t microbatch = sampled_end_; microbatch < end; ++microbatch) {
    const MicrobatchRange* range = RangeOf(microbatch);
    // The greatest delays are sampled only so far from the cut.
    if (!Counts(microbatch) || microbatch - range->first < policy.lag) continue;
    for (int32_t stage = 0; stage < stages_; ++stage) {
      counter_.AddSampled(stage, draws.DelayOf(microbatch, stage, microbatch - range->first));
    }
  }
  sampled_end_ = std::max(sampled_end_, end);
}

}  // namespace penstock
