#include "coordinator/block_delay_watch.h"

#include <algorithm>

#include "job/run/run_schedule.h"
#include "schedule/block_draws.h"

namespace penstock {
namespace {

// Pieces of the timeline overlap by more than what clocks and answers differ by.
constexpr int64_t kOverlapNs = 500'000'000;

// The ranges between cuts in which the method runs, not its synchronous start.
std::vector<MicrobatchRange> RangesOf(const ResolvedJob& job, int64_t first_step,
                                      absl::Span<const int64_t> cuts) {
  std::vector<MicrobatchRange> ranges;
  for (const int64_t cut : cuts) {
    if (!job.DrainsAfter(first_step)) ranges.push_back(RangeOfSteps(job, first_step, cut));
    first_step = cut;
  }
  return ranges;
}

}  // namespace

void WriteBlockDelay(const BlockDelay& delay, int64_t longest, v1::Statistic& statistic,
                     google::protobuf::RepeatedPtrField<v1::DelayCounts>& counts) {
  statistic.set_max(static_cast<double>(delay.max));
  statistic.set_mean(delay.mean);
  counts.Clear();
  longest = std::min(longest, kBlockDelaysExact);
  for (const std::vector<int64_t>& pairs : delay.pairs) {
    v1::DelayCounts& stage = *counts.Add();
    std::vector<int64_t> told(longest + 2);  // the last is of all longer ones
    int64_t sum = 0;
    for (int64_t late = 0; late < static_cast<int64_t>(pairs.size()); ++late) {
      told[std::min(late, longest + 1)] += pairs[late];
      sum += late * pairs[late];
    }
    stage.mutable_microbatches()->Assign(told.begin(), told.end());
    stage.set_sum(sum);
  }
}

BlockDelayWatch::BlockDelayWatch(const ResolvedJob& job, const Topology& topology,
                                 int64_t first_step, absl::Span<const int64_t> cuts)
    : microbatches_of_step_(job.microbatches) {
  // This is as far as any timing takes PipeDream, and a little further.
  const int64_t depth = topology.depth();
  longest_ = PipelineDelay(depth) + 2 * depth;
  const bool one_place_each = topology.form == Topology::Form::kPipelines;
  if (job.method->synchronous || !one_place_each || depth > kBlockDelayStagesMax) return;
  meter_ = std::make_unique<BlockDelayMeter>(topology.stages(), topology.pipelines,
                                             RangesOf(job, first_step, cuts));
  if (job.draws()) samples_ = WeightPolicyOf(*job.method, ScheduleOptionsOf(job, topology));
}

int64_t BlockDelayWatch::LastNs(Now now) const {
  if (!Asks()) return 0;
  return now.monotonic_ns - meter_->until_ns().value_or(now.monotonic_ns - kIntervalNs) +
         kOverlapNs;
}

void BlockDelayWatch::OnGathered(const Timeline& passes) {
  if (Asks()) meter_->Add(passes);
}

void BlockDelayWatch::OnStep(int64_t step) {
  if (samples_.has_value()) meter_->AddSampled(*samples_, step * microbatches_of_step_);
}

void BlockDelayWatch::WriteTo(v1::JobResult& result) const {
  BlockDelay delay;
  if (meter_ != nullptr) {
    delay = meter_->delay();
    if (delay.count == 0) return;
  } else {
    // Without staleness there is no block delay, and staleness is counted on every stage.
    const auto& stages = result.per_stage();
    const bool none = std::all_of(stages.begin(), stages.end(), [](const v1::StageReport& stage) {
      return stage.staleness().max() == 0;
    });
    if (stages.empty() || !none) return;
  }
  WriteBlockDelay(delay, longest_, *result.mutable_block_delay_measured(),
                  *result.mutable_block_delays_measured());
}

}  // namespace penstock
