#include "services/coordinator/coordinator_service.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "coordinator/job_state.h"
#include "job/job_trace.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/coordinator/audited.h"
#include "services/coordinator/checkpoint_files_service.h"
#include "services/coordinator/data_service.h"
#include "services/coordinator/job_records.h"
#include "services/coordinator/job_requests.h"
#include "services/coordinator/put_jobs.h"
#include "services/rpc/access.h"
#include "services/rpc/address.h"
#include "services/rpc/status.h"
#include "services/rpc/worker_name.h"

namespace penstock {
namespace {

using Registry = v1::WorkerRegistry::AsyncService;
using Jobs = v1::JobService::AsyncService;

// The longest that the loop may take for one question, whatever the client's deadline.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(30);

// A caller with a certificate for a worker's name speaks for that worker alone.
absl::Status CheckIsWorker(const CallInfo& call, const std::string& name) {
  return call.caller.has_value() ? CheckSpeaksFor(*call.caller, name) : absl::OkStatus();
}

// Checks where a worker says that it is reached: a host and a port, and nothing else that gRPC would take for an
// address, such as a socket's path.
absl::Status CheckAddress(const std::string& text, bool local_only) {
  constexpr size_t kBytesMax = 300;  // names of hosts have 253 letters
  const absl::StatusOr<HostPort> address = ParseHostPort(text.substr(0, kBytesMax));
  PENSTOCK_RETURN_IF_ERROR(Annotate(address.status(), "where the worker is reached"));
  if (text.size() <= kBytesMax && (!local_only || address->IsLoopback())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the worker is reached at ", text.substr(0, kBytesMax),
      ", and this coordinator speaks plain text at addresses of its machine alone: start it with "
      "--certificates, or with --insecure-network at an address of the network"));
}

absl::Time DeadlineOf(const CallInfo& call) {
  return std::min(call.deadline, absl::Now() + kAnswerTimeout);
}

// The source of one WatchJob stream: reads the job's stored events page by page.
class EventPull {
 public:
  EventPull(EventLoop& loop, const v1::WatchJobRequest& request)
      : loop_(loop),
        job_id_(request.job_id()),
        past_only_(request.past_only()),
        last_sequence_(request.after_sequence()) {}

  StreamStep<v1::JobEvent> operator()() {
    if (page_.empty()) {
      const absl::StatusOr<Page> page = ReadPage();
      if (!page.ok()) {
        return StreamStep<v1::JobEvent>::End(page.status());
      }
      page_.assign(page->events.begin(), page->events.end());
      if (page_.empty()) {
        return page->ended || past_only_ ? StreamStep<v1::JobEvent>::End(absl::OkStatus())
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
        absl::Now() + kAnswerTimeout,
        [job_id = job_id_, after = last_sequence_](Coordinator& coordinator, StateStore& store,
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
  const bool past_only_;
  int64_t last_sequence_;
  std::deque<v1::JobEvent> page_;
};

// Says, when it goes, that a worker's Attach stream has ended. Not of one that has come to its deadline, which says nothing
// about the worker.
class AttachedStream {
 public:
  AttachedStream(EventLoop& loop, std::string worker, int64_t stream, absl::Time deadline)
      : loop_(loop), worker_(std::move(worker)), stream_(stream), deadline_(deadline) {}
  ~AttachedStream() {
    // The worker's clock may be a little ahead.
    constexpr absl::Duration kSlack = absl::Seconds(1);
    if (absl::Now() >= deadline_ - kSlack) return;
    loop_.Post([worker = worker_, stream = stream_](Coordinator& coordinator, Now now) {
      coordinator.Detach(worker, stream, now);
    });
  }
  AttachedStream(const AttachedStream&) = delete;
  AttachedStream& operator=(const AttachedStream&) = delete;

 private:
  EventLoop& loop_;
  const std::string worker_;
  const int64_t stream_;
  const absl::Time deadline_;
};

absl::StatusOr<StreamPull<v1::AttachResponse>> AttachWorker(EventLoop& loop,
                                                            const v1::AttachRequest& request,
                                                            const CallInfo& call) {
  PENSTOCK_RETURN_IF_ERROR(CheckIsWorker(call, request.name()));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t stream,
                            loop.Ask<int64_t>(DeadlineOf(call), [request](Coordinator& coordinator,
                                                                          StateStore&, Now now) {
                              return coordinator.Attach(request, now);
                            }));
  // It goes with the last copy of the source.
  return [attached =
              std::make_shared<const AttachedStream>(loop, request.name(), stream, call.deadline),
          welcomed = false]() mutable {
    if (std::exchange(welcomed, true)) return StreamStep<v1::AttachResponse>::Wait();
    return StreamStep<v1::AttachResponse>::Message(v1::AttachResponse());
  };
}

// Returns why there is no timeline of a job that has ended.
absl::Status NoTimelineOf(const v1::GetJobResponse& record,
                          const v1::GetTimelineResponse& gathered) {
  const std::string job = absl::StrCat("job ", record.summary().job_id(), " ");
  const std::string ended = JobStateName(record.summary().state());
  if (record.has_profile_spec()) {
    return absl::FailedPreconditionError(absl::StrCat(
        job, "is a profile, which has no timeline; `penstock status` shows what it measured"));
  }
  if (record.summary().started_unix_ms() == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        job, "has ended (", ended, ") before it began to train, so it has no timeline"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(job, "has no timeline: none was kept when it ended (", ended,
                   "), and its workers have none any more",
                   gathered.missing_workers().empty()
                       ? ""
                       : absl::StrCat(" (no answer from ",
                                      absl::StrJoin(gathered.missing_workers(), ", "), ")")));
}

// Fetches the timeline of a job under way now, which takes a while; for another job it is the one kept at its end. For
// a job that has just ended it may not be kept yet, while its workers still have it.
void GetTimeline(const CoordinatorParts& parts, const std::string& job_id, const CallInfo& call,
                 const Reply<v1::GetTimelineResponse>& reply) {
  const absl::StatusOr<FoundTimeline> found = parts.loop.Ask<FoundTimeline>(
      DeadlineOf(call),
      [job_id, &loop = parts.loop](Coordinator& coordinator, StateStore& store, Now) {
        return FindTimeline(job_id, coordinator, store, loop);
      });
  if (!found.ok()) {
    return reply(found.status());
  }
  if (found->stored.ok() || !absl::IsNotFound(found->stored.status())) {
    return reply(found->stored);
  }
  const v1::GetJobResponse& record = found->record;
  const v1::JobState state = record.summary().state();
  const bool has_begun = record.summary().started_unix_ms() > 0;
  if (IsTerminal(state)) {
    if (!has_begun || record.has_profile_spec()) return reply(NoTimelineOf(record, {}));
    return parts.timelines.Gather(
        job_id, record.plan(),
        [record, reply](v1::GetTimelineResponse gathered) {
          if (gathered.spans().empty()) {
            return reply(NoTimelineOf(record, gathered));
          }
          reply(std::move(gathered));
        },
        JobTraceOf(record));
  }
  if (state != v1::JOB_STATE_RUNNING && state != v1::JOB_STATE_DRAINING) {
    return reply(absl::FailedPreconditionError(
        absl::StrCat("job ", job_id,
                     has_begun ? " waits to go on, or is prepared for it; ask again when it trains"
                               : " has not begun to train, so it has no timeline yet")));
  }
  parts.timelines.Gather(job_id, record.plan(), reply, JobTraceOf(record));
}

// Returns whether a job that has not ended writes checkpoints to the directory that `checkpoint` is in.
bool MayBeWritten(const std::string& checkpoint, const Coordinator& coordinator) {
  const auto folder = std::filesystem::path(checkpoint).lexically_normal().parent_path();
  const v1::ListJobsResponse jobs = coordinator.ListJobs();
  return std::any_of(jobs.jobs().begin(), jobs.jobs().end(), [&](const v1::JobSummary& job) {
    const JobRun* run = coordinator.FindRun(job.job_id());
    if (run == nullptr || run->spec().checkpoint().directory().empty()) return false;
    const std::filesystem::path directory(run->spec().checkpoint().directory() + "/");
    return directory.lexically_normal() == folder / "";
  });
}

// Refuses a new job that could not start (`start`), unless another is about to write what it starts from.
absl::StatusOr<Submission> Startable(absl::StatusOr<Submission> submission,
                                     const absl::Status& start, const Coordinator& coordinator) {
  const bool is_new = submission.ok() && submission->record.has_value();
  if (start.ok() || !is_new) return submission;
  const std::string& resume = submission->record->record.spec().checkpoint().resume();
  if (absl::IsNotFound(start) && MayBeWritten(resume, coordinator)) return submission;
  return start;
}

void AddRegistry(RpcServer& server, CoordinatorParts parts) {
  Registry& registry = server.AddService<Registry>(Callers::kCluster);
  EventLoop& loop = parts.loop;
  server.Unary(
      registry, &Registry::RequestRegisterWorker,
      [&loop, local_only = parts.local_workers_only, on_other_version = parts.on_other_version](
          const v1::RegisterWorkerRequest& request,
          const CallInfo& call) -> absl::StatusOr<v1::RegisterWorkerResponse> {
        PENSTOCK_RETURN_IF_ERROR(CheckWorkerName(request.name()));
        PENSTOCK_RETURN_IF_ERROR(CheckIsWorker(call, request.name()));
        PENSTOCK_RETURN_IF_ERROR(CheckAddress(request.address(), local_only));
        absl::StatusOr<v1::RegisterWorkerResponse> response = loop.Ask<v1::RegisterWorkerResponse>(
            DeadlineOf(call), [request](Coordinator& coordinator, StateStore&, Now now) {
              return coordinator.RegisterWorker(request, now);
            });
        if (absl::IsFailedPrecondition(response.status())) {
          on_other_version(response.status(), call);
        }
        return response;
      });
  // All workers call these, again and again, and each turn of the loop may wait for the store: no thread waits with them, so
  // that one turn answers all that have come. Requests live until the reply.
  server.UnaryAsync(registry, &Registry::RequestHeartbeat,
                    [&loop](const v1::HeartbeatRequest& request, const CallInfo& call,
                            const Reply<v1::HeartbeatResponse>& reply) {
                      const absl::Status allowed = CheckIsWorker(call, request.name());
                      if (!allowed.ok()) return reply(allowed);
                      loop.AskThen<v1::HeartbeatResponse>(
                          [&request](Coordinator& coordinator, StateStore&,
                                     Now now) -> absl::StatusOr<v1::HeartbeatResponse> {
                            PENSTOCK_RETURN_IF_ERROR(coordinator.Heartbeat(request, now));
                            return coordinator.AnswerTo(request);
                          },
                          reply);
                    });
  server.Stream(
      registry, &Registry::RequestAttach,
      [&loop](const v1::AttachRequest& request, const CallInfo& call, const StreamWaker&) {
        return AttachWorker(loop, request, call);
      },
      Callers::kAttached);
  // It is acknowledged at any time: an event that could not be stored yet is kept and tried again, while a worker that
  // repeats it for ever would be of no use.
  server.UnaryAsync(registry, &Registry::RequestReportRun,
                    [&loop](const v1::ReportRunRequest& request, const CallInfo& call,
                            const Reply<v1::ReportRunResponse>& reply) {
                      const absl::Status allowed = CheckIsWorker(call, request.worker());
                      if (!allowed.ok()) return reply(allowed);
                      loop.AskThen<v1::ReportRunResponse>(
                          [&request](Coordinator& coordinator, StateStore&, Now now) {
                            return coordinator.ReportRun(request, now);
                          },
                          reply);
                    });
}

// Reads the directories that a job names and that are read where it is handed in. Waits for a disk, so not on the loop's thread.
template <typename Request>
absl::Status ReadDirectoriesOf(Request& request, const CoordinatorParts& parts) {
  v1::JobSpec& spec = *request.mutable_spec();
  if (NamesPutDirectory(spec)) {
    auto read = std::make_shared<v1::JobSpec>(spec);
    const auto complete = [read, store = parts.data] { return CompletePutJob(store, *read); };
    PENSTOCK_RETURN_IF_ERROR(
        parts.data == nullptr
            ? complete()
            : parts.keeper.DoOnDisk(parts.data->directory(), "what was put", complete));
    spec = *read;
  }
  if (!spec.model().has_hugging_face()) return absl::OkStatus();
  return parts.keeper.ReadModel(*spec.mutable_model());
}

void AddAuditedCalls(RpcServer& server, Jobs& jobs, CoordinatorParts parts) {
  // Requests live until the reply.
  server.UnaryAsync(
      jobs, &Jobs::RequestSubmitJob,
      [parts](const v1::SubmitJobRequest& request, const CallInfo& call,
              const Reply<v1::SubmitJobResponse>& reply) {
        const auto submit = [parts, &request, call]() -> absl::StatusOr<v1::SubmitJobResponse> {
          v1::SubmitJobRequest read = request;
          PENSTOCK_RETURN_IF_ERROR(ReadDirectoriesOf(read, parts));
          return parts.loop.Ask<v1::SubmitJobResponse>(
              DeadlineOf(call),
              [request = std::move(read), trace = call.trace,
               start = parts.keeper.LookAhead(request.spec().checkpoint()),
               &loop = parts.loop](Coordinator& coordinator, StateStore&, Now now) {
                return TakeJob(
                    Startable(coordinator.CheckSubmission(request, now), start, coordinator), trace,
                    coordinator, loop, now);
              });
        };
        Audited<v1::SubmitJobResponse>(parts.audit, {"submit"}, call, submit, reply);
      });
  server.UnaryAsync(
      jobs, &Jobs::RequestSubmitProfile,
      [parts](const v1::SubmitProfileRequest& request, const CallInfo& call,
              const Reply<v1::SubmitJobResponse>& reply) {
        const auto submit = [parts, &request, call]() -> absl::StatusOr<v1::SubmitJobResponse> {
          v1::SubmitProfileRequest read = request;
          PENSTOCK_RETURN_IF_ERROR(ReadDirectoriesOf(read, parts));
          return parts.loop.Ask<v1::SubmitJobResponse>(
              DeadlineOf(call), [request = std::move(read), trace = call.trace, &loop = parts.loop](
                                    Coordinator& coordinator, StateStore&, Now now) {
                return TakeJob(coordinator.CheckProfile(request, now), trace, coordinator, loop,
                               now);
              });
        };
        Audited<v1::SubmitJobResponse>(parts.audit, {"submit-profile"}, call, submit, reply);
      });
  server.UnaryAsync(
      jobs, &Jobs::RequestCancelJob,
      [parts](const v1::CancelJobRequest& request, const CallInfo& call,
              const Reply<v1::CancelJobResponse>& reply) {
        const auto cancel = [parts, &request, call]() -> absl::StatusOr<v1::CancelJobResponse> {
          PENSTOCK_RETURN_IF_ERROR(Coordinator::CheckJobId(request.job_id()));
          return parts.loop.Ask<v1::CancelJobResponse>(
              DeadlineOf(call),
              [request, &loop = parts.loop](Coordinator& coordinator, StateStore&, Now now) {
                return CancelJob(request.job_id(), coordinator, loop, now);
              });
        };
        Audited<v1::CancelJobResponse>(parts.audit, {"cancel", request.job_id()}, call, cancel,
                                       reply);
      });
}

void AddJobCalls(RpcServer& server, Jobs& jobs, CoordinatorParts parts) {
  EventLoop& loop = parts.loop;
  server.Unary(jobs, &Jobs::RequestGetJob,
               [&loop](const v1::GetJobRequest& request,
                       const CallInfo& call) -> absl::StatusOr<v1::GetJobResponse> {
                 PENSTOCK_RETURN_IF_ERROR(Coordinator::CheckJobId(request.job_id()));
                 return loop.Ask<v1::GetJobResponse>(
                     DeadlineOf(call),
                     [request, &loop](Coordinator& coordinator, StateStore& store, Now) {
                       return FindRecord(request.job_id(), coordinator, store, loop);
                     });
               });
  server.Unary(
      jobs, &Jobs::RequestListJobs, [&loop](const v1::ListJobsRequest&, const CallInfo& call) {
        return loop.Ask<v1::ListJobsResponse>(
            DeadlineOf(call),
            [](Coordinator& coordinator, StateStore&, Now) -> absl::StatusOr<v1::ListJobsResponse> {
              return coordinator.ListJobs();
            });
      });
  server.Unary(jobs, &Jobs::RequestListWorkers,
               [&loop](const v1::ListWorkersRequest&, const CallInfo& call) {
                 return loop.Ask<v1::ListWorkersResponse>(
                     DeadlineOf(call),
                     [](Coordinator& coordinator, StateStore&,
                        Now now) -> absl::StatusOr<v1::ListWorkersResponse> {
                       return coordinator.ListWorkers(now);
                     });
               });
}

void AddJobStreams(RpcServer& server, Jobs& jobs, CoordinatorParts parts) {
  server.UnaryAsync(jobs, &Jobs::RequestGetTimeline,
                    [parts](const v1::GetTimelineRequest& request, const CallInfo& call,
                            const Reply<v1::GetTimelineResponse>& reply) {
                      const absl::Status good = Coordinator::CheckJobId(request.job_id());
                      if (!good.ok()) return reply(good);
                      GetTimeline(parts, request.job_id(), call, reply);
                    });
  server.Stream(jobs, &Jobs::RequestWatchJob,
                [parts](const v1::WatchJobRequest& request, const CallInfo& call,
                        StreamWaker waker) -> absl::StatusOr<StreamPull<v1::JobEvent>> {
                  PENSTOCK_RETURN_IF_ERROR(Coordinator::CheckJobId(request.job_id()));
                  PENSTOCK_RETURN_IF_ERROR(
                      parts.loop
                          .Ask<v1::JobSummary>(DeadlineOf(call),
                                               [job_id = request.job_id()](Coordinator& coordinator,
                                                                           StateStore&, Now) {
                                                 return coordinator.FindSummary(job_id);
                                               })
                          .status());
                  if (!request.past_only()) {
                    parts.watchers.Add(request.job_id(), std::move(waker));
                  }
                  return StreamPull<v1::JobEvent>(EventPull(parts.loop, request));
                });
}

}  // namespace

void AddCoordinatorServices(RpcServer& server, const CoordinatorParts& parts) {
  AddRegistry(server, parts);
  Jobs& jobs = server.AddService<Jobs>(Callers::kUsers);
  AddAuditedCalls(server, jobs, parts);
  AddJobCalls(server, jobs, parts);
  AddJobStreams(server, jobs, parts);
  AddDataService(server, parts.data, parts.audit);
  AddCheckpointFilesService(server, parts.checkpoint_files);
}

}  // namespace penstock
