#include "services/coordinator/timeline_gatherer.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/mutex.h"

namespace penstock {
namespace {

// Answers on their way, shared by the calls.
struct Gathering {
  Mutex mutex;
  std::vector<WorkerTimeline> workers ABSL_GUARDED_BY(mutex);
  int missing ABSL_GUARDED_BY(mutex) = 0;
  std::function<void(std::vector<WorkerTimeline>)> done;
};

}  // namespace

int64_t ClockOffsets::Add(const std::string& worker, uint64_t incarnation, int64_t asked_ns,
                          int64_t back_ns, int64_t answered_ns) {
  // Quartz clocks part by less than this.
  constexpr int64_t kNsPerDrift = 10'000;  // 100 ppm
  Best now = {.incarnation = incarnation,
              .offset_ns = asked_ns + (back_ns - asked_ns) / 2 - answered_ns,
              .error_ns = (back_ns - asked_ns) / 2,
              .at_ns = back_ns};
  // Clocks that agree as far as one can tell are one clock: those of two machines began at other times.
  if (std::abs(now.offset_ns) <= now.error_ns) now.offset_ns = 0;
  MutexLock lock(mutex_);
  Best& best = best_.try_emplace(worker, now).first->second;
  const int64_t error_ns = best.error_ns + (back_ns - best.at_ns) / kNsPerDrift;
  if (best.incarnation != incarnation || now.error_ns <= error_ns) best = now;
  return best.offset_ns;
}

v1::GetTimelineResponse MergeTimelines(const std::vector<WorkerTimeline>& workers,
                                       int64_t spans_max) {
  std::vector<v1::TimelineSpan> spans;
  v1::GetTimelineResponse merged;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i].answered) merged.add_missing_workers(workers[i].worker);
    for (v1::TimelineSpan span : workers[i].response.spans()) {
      span.set_worker(static_cast<int32_t>(i));
      span.set_start_ns(span.start_ns() + workers[i].offset_ns);
      span.set_end_ns(span.end_ns() + workers[i].offset_ns);
      spans.push_back(std::move(span));
    }
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const v1::TimelineSpan& a, const v1::TimelineSpan& b) {
                     return a.start_ns() < b.start_ns();
                   });
  const auto excess = std::max<int64_t>(0, static_cast<int64_t>(spans.size()) - spans_max);
  merged.set_workers(static_cast<int32_t>(workers.size()));
  merged.mutable_spans()->Assign(spans.begin() + excess, spans.end());
  return merged;
}

void TimelineGatherer::Gather(const std::string& job_id, const v1::Plan& plan,
                              std::function<void(v1::GetTimelineResponse)> done,
                              const CallTrace& trace) {
  v1::GetRunTimelineRequest request;
  request.set_job_id(job_id);
  Ask(
      plan, request,
      [done = std::move(done)](const std::vector<WorkerTimeline>& workers) {
        done(MergeTimelines(workers, kSpansMax));
      },
      trace);
}

void TimelineGatherer::GatherPasses(
    const std::string& job_id, const v1::Plan& plan, absl::Duration window,
    std::function<void(v1::GetTimelineResponse, std::vector<StageReports>)> done) {
  v1::GetRunTimelineRequest request;
  request.set_job_id(job_id);
  // 0 would ask for all spans, and the last nanosecond has none.
  request.set_last_ns(std::max<int64_t>(1, absl::ToInt64Nanoseconds(window)));
  request.set_passes_only(true);
  request.set_with_stages(true);
  Ask(plan, request,
      [done = std::move(done)](std::vector<WorkerTimeline> workers) {
        v1::GetTimelineResponse timeline = MergeTimelines(workers, kSpansMax);
        std::vector<StageReports> stages;
        for (WorkerTimeline& worker : workers) {
          stages.push_back(std::move(*worker.response.mutable_stages()));
        }
        done(std::move(timeline), std::move(stages));
      },
      /*trace=*/{});
}

void TimelineGatherer::GatherLive(const std::string& job_id, const v1::Plan& plan,
                                  absl::Duration window, std::function<void(LiveRun)> done) {
  v1::GetRunTimelineRequest request;
  request.set_job_id(job_id);
  request.set_last_ns(absl::ToInt64Nanoseconds(window));
  request.set_with_stages(true);
  Ask(plan, request,
      [&clock = clock_, done = std::move(done)](std::vector<WorkerTimeline> workers) {
        LiveRun live{.timeline = MergeTimelines(workers, kSpansMax),
                     .gathered_ns = clock.MonotonicNs()};
        for (WorkerTimeline& worker : workers) {
          for (v1::StageReport& stage : *worker.response.mutable_stages()) {
            live.stages.push_back(std::move(stage));
          }
        }
        std::stable_sort(live.stages.begin(), live.stages.end(),
                         [](const v1::StageReport& a, const v1::StageReport& b) {
                           return a.stage() < b.stage();
                         });
        done(std::move(live));
      },
      /*trace=*/{});
}

void TimelineGatherer::Ask(const v1::Plan& plan, const v1::GetRunTimelineRequest& request,
                           std::function<void(std::vector<WorkerTimeline>)> done,
                           const CallTrace& trace) {
  // By worker index; with several stages on a worker its address is the same.
  std::vector<const v1::StageAssignment*> workers;
  for (const v1::StageAssignment& stage : plan.stages()) {
    const auto index = static_cast<size_t>(stage.worker_index());
    workers.resize(std::max(workers.size(), index + 1), nullptr);
    workers[index] = &stage;
  }
  auto gathering = std::make_shared<Gathering>();
  gathering->done = std::move(done);
  {
    MutexLock lock(gathering->mutex);
    for (const v1::StageAssignment* worker : workers) {
      gathering->workers.push_back({.worker = worker->worker(), .answered = false});
    }
    gathering->missing = static_cast<int>(workers.size());
  }
  if (workers.empty()) {
    return gathering->done({});
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    const int64_t asked_ns = clock_.MonotonicNs();
    calls_.Start(
        workers[i]->worker(), workers[i]->address(), &v1::WorkerControl::Stub::AsyncGetRunTimeline,
        request, kTimeout,
        [this, i, asked_ns, incarnation = workers[i]->incarnation(),
         gathering](absl::StatusOr<v1::GetRunTimelineResponse> response) {
          const int64_t back_ns = clock_.MonotonicNs();
          std::vector<WorkerTimeline> complete;
          {
            MutexLock lock(gathering->mutex);
            if (response.ok()) {
              gathering->workers[i].answered = true;
              gathering->workers[i].offset_ns =
                  offsets_.Add(gathering->workers[i].worker, incarnation, asked_ns, back_ns,
                               response->monotonic_ns());
              gathering->workers[i].response = std::move(*response);
            }
            if (--gathering->missing > 0) {
              return;
            }
            complete = std::move(gathering->workers);
          }
          gathering->done(std::move(complete));
        },
        trace);
  }
}

}  // namespace penstock
