#include "services/coordinator/coordinator_service.h"

#include <deque>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "penstock/v1/cluster.grpc.pb.h"

namespace penstock {
namespace {

using Registry = v1::WorkerRegistry::AsyncService;
using Jobs = v1::JobService::AsyncService;
using Answer = EventLoop::Answer;

// What the loop takes for one question at the longest, whatever the client's deadline.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(30);

absl::Time DeadlineOf(const CallInfo& call) {
  return std::min(call.deadline, absl::Now() + kAnswerTimeout);
}

// The source of one WatchJob stream: reads the job's stored events page by page.
class EventPull {
 public:
  EventPull(EventLoop& loop, std::string job_id, int64_t after_sequence)
      : loop_(loop), job_id_(std::move(job_id)), last_sequence_(after_sequence) {}

  StreamStep<v1::JobEvent> operator()() {
    if (page_.empty()) {
      const absl::StatusOr<Page> page = ReadPage();
      if (!page.ok()) {
        return StreamStep<v1::JobEvent>::End(page.status());
      }
      page_.assign(page->events.begin(), page->events.end());
      if (page_.empty()) {
        return page->ended ? StreamStep<v1::JobEvent>::End(absl::OkStatus())
                           : StreamStep<v1::JobEvent>::Wait();
      }
    }
    v1::JobEvent event = std::move(page_.front());
    page_.pop_front();
    last_sequence_ = event.sequence();
    return StreamStep<v1::JobEvent>::Message(std::move(event));
  }

 private:
  static constexpr int kEventsPerPage = 256;
  struct Page {
    std::vector<v1::JobEvent> events;
    bool ended = false;
  };

  absl::StatusOr<Page> ReadPage() {
    return loop_.Ask<Page>(
        Answer::kAnyTime, absl::Now() + kAnswerTimeout,
        [job_id = job_id_, after = last_sequence_](Coordinator& coordinator, JobStore& store,
                                                   Now) -> absl::StatusOr<Page> {
          Page page;
          PENSTOCK_ASSIGN_OR_RETURN(page.events, store.ReadEvents(job_id, after, kEventsPerPage));
          PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSummary summary, coordinator.FindSummary(job_id));
          if (page.events.empty() && IsTerminal(summary.state())) {
            // The last event of a job says that it has ended, so there are none to come, unless
            // they could not be stored yet.
            PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse stored, store.ReadRecord(job_id));
            page.ended = IsTerminal(stored.summary().state());
          }
          return page;
        });
  }

  EventLoop& loop_;
  const std::string job_id_;
  int64_t last_sequence_;
  std::deque<v1::JobEvent> page_;
};

absl::StatusOr<v1::GetJobResponse> FindRecord(const std::string& job_id, Coordinator& coordinator,
                                              JobStore& store) {
  if (const JobRun* run = coordinator.FindRun(job_id); run != nullptr) {
    return run->Record();
  }
  PENSTOCK_RETURN_IF_ERROR(coordinator.FindSummary(job_id).status());
  return store.ReadRecord(job_id);
}

// Of a job under way the timeline is fetched now; of another it is the one kept at its end.
absl::StatusOr<v1::GetTimelineResponse> FindTimeline(const CoordinatorParts& parts,
                                                     const std::string& job_id,
                                                     absl::Time deadline) {
  struct Found {
    v1::GetJobResponse record;
    absl::StatusOr<v1::GetTimelineResponse> stored;
  };
  PENSTOCK_ASSIGN_OR_RETURN(
      const Found found,
      parts.loop.Ask<Found>(
          Answer::kAnyTime, deadline,
          [&job_id](Coordinator& coordinator, JobStore& store, Now) -> absl::StatusOr<Found> {
            PENSTOCK_ASSIGN_OR_RETURN(v1::GetJobResponse record,
                                      FindRecord(job_id, coordinator, store));
            return Found{std::move(record), store.ReadTimeline(job_id)};
          }));
  const v1::JobState state = found.record.summary().state();
  if (found.stored.ok() || IsTerminal(state)) {
    return found.stored;
  }
  if (state != v1::JOB_STATE_RUNNING && state != v1::JOB_STATE_DRAINING) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id, " has not begun to train, so it has no timeline yet"));
  }
  auto promise = std::make_shared<std::promise<v1::GetTimelineResponse>>();
  std::future<v1::GetTimelineResponse> gathered = promise->get_future();
  parts.timelines.Gather(job_id, found.record.plan(), [promise](v1::GetTimelineResponse timeline) {
    promise->set_value(std::move(timeline));
  });
  return gathered.get();  // at the latest after TimelineGatherer::kTimeout
}

void AddRegistry(RpcServer& server, CoordinatorParts parts) {
  Registry& registry = server.AddService<Registry>();
  EventLoop& loop = parts.loop;
  server.Unary(registry, &Registry::RequestRegisterWorker,
               [&loop](const v1::RegisterWorkerRequest& request, const CallInfo& call) {
                 return loop.Ask<v1::RegisterWorkerResponse>(
                     Answer::kAnyTime, DeadlineOf(call),
                     [request](Coordinator& coordinator, JobStore&, Now now) {
                       return coordinator.RegisterWorker(request, now);
                     });
               });
  server.Unary(registry, &Registry::RequestHeartbeat,
               [&loop](const v1::HeartbeatRequest& request, const CallInfo& call) {
                 return loop.Ask<v1::HeartbeatResponse>(
                     Answer::kAnyTime, DeadlineOf(call),
                     [request](Coordinator& coordinator, JobStore&,
                               Now now) -> absl::StatusOr<v1::HeartbeatResponse> {
                       PENSTOCK_RETURN_IF_ERROR(coordinator.Heartbeat(request, now));
                       return v1::HeartbeatResponse();
                     });
               });
  // Acknowledged at any time: an event that could not be stored yet is kept and tried again, while
  // a worker that repeats it for ever would be of no use.
  server.Unary(registry, &Registry::RequestReportRun,
               [&loop](const v1::ReportRunRequest& request, const CallInfo& call) {
                 return loop.Ask<v1::ReportRunResponse>(
                     Answer::kAnyTime, DeadlineOf(call),
                     [request](Coordinator& coordinator, JobStore&, Now now) {
                       return coordinator.ReportRun(request, now);
                     });
               });
}

void AddJobCalls(RpcServer& server, Jobs& jobs, CoordinatorParts parts) {
  EventLoop& loop = parts.loop;
  server.Unary(jobs, &Jobs::RequestSubmitJob,
               [&loop](const v1::SubmitJobRequest& request, const CallInfo& call) {
                 return loop.Ask<v1::SubmitJobResponse>(
                     Answer::kOnceStored, DeadlineOf(call),
                     [request](Coordinator& coordinator, JobStore&, Now now) {
                       return coordinator.SubmitJob(request, now);
                     });
               });
  server.Unary(jobs, &Jobs::RequestCancelJob,
               [&loop](const v1::CancelJobRequest& request, const CallInfo& call) {
                 return loop.Ask<v1::CancelJobResponse>(
                     Answer::kAnyTime, DeadlineOf(call),
                     [request](Coordinator& coordinator, JobStore&, Now now) {
                       return coordinator.CancelJob(request.job_id(), now);
                     });
               });
  server.Unary(jobs, &Jobs::RequestGetJob,
               [&loop](const v1::GetJobRequest& request, const CallInfo& call) {
                 return loop.Ask<v1::GetJobResponse>(
                     Answer::kAnyTime, DeadlineOf(call),
                     [request](Coordinator& coordinator, JobStore& store, Now) {
                       return FindRecord(request.job_id(), coordinator, store);
                     });
               });
  server.Unary(
      jobs, &Jobs::RequestListJobs, [&loop](const v1::ListJobsRequest&, const CallInfo& call) {
        return loop.Ask<v1::ListJobsResponse>(
            Answer::kAnyTime, DeadlineOf(call),
            [](Coordinator& coordinator, JobStore&, Now) -> absl::StatusOr<v1::ListJobsResponse> {
              return coordinator.ListJobs();
            });
      });
  server.Unary(jobs, &Jobs::RequestListWorkers,
               [&loop](const v1::ListWorkersRequest&, const CallInfo& call) {
                 return loop.Ask<v1::ListWorkersResponse>(
                     Answer::kAnyTime, DeadlineOf(call),
                     [](Coordinator& coordinator, JobStore&,
                        Now now) -> absl::StatusOr<v1::ListWorkersResponse> {
                       return coordinator.ListWorkers(now);
                     });
               });
}

void AddJobStreams(RpcServer& server, Jobs& jobs, CoordinatorParts parts) {
  server.Unary(jobs, &Jobs::RequestGetTimeline,
               [parts](const v1::GetTimelineRequest& request, const CallInfo& call) {
                 return FindTimeline(parts, request.job_id(), DeadlineOf(call));
               });
  server.Stream(
      jobs, &Jobs::RequestWatchJob,
      [parts](const v1::WatchJobRequest& request, const CallInfo& call,
              StreamWaker waker) -> absl::StatusOr<StreamPull<v1::JobEvent>> {
        PENSTOCK_RETURN_IF_ERROR(
            parts.loop
                .Ask<v1::JobSummary>(Answer::kAnyTime, DeadlineOf(call),
                                     [&request](Coordinator& coordinator, JobStore&, Now) {
                                       return coordinator.FindSummary(request.job_id());
                                     })
                .status());
        parts.watchers.Add(request.job_id(), std::move(waker));
        return StreamPull<v1::JobEvent>(
            EventPull(parts.loop, request.job_id(), request.after_sequence()));
      });
}

}  // namespace

void AddCoordinatorServices(RpcServer& server, CoordinatorParts parts) {
  AddRegistry(server, parts);
  Jobs& jobs = server.AddService<Jobs>();
  AddJobCalls(server, jobs, parts);
  AddJobStreams(server, jobs, parts);
}

}  // namespace penstock
