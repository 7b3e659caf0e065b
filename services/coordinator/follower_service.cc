#include "services/coordinator/follower_service.h"

#include "penstock/v1/checkpoint_files.grpc.pb.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "penstock/v1/data.grpc.pb.h"

namespace penstock {

void AddFollowerServices(RpcServer& server, const std::function<absl::Status()>& refuse) {
  using Registry = v1::WorkerRegistry::AsyncService;
  using Jobs = v1::JobService::AsyncService;
  const auto unary = [refuse](const auto&, const CallInfo&) { return refuse(); };
  Registry& registry = server.AddService<Registry>(Callers::kCluster);
  server.Unary(registry, &Registry::RequestRegisterWorker, unary);
  server.Unary(registry, &Registry::RequestHeartbeat, unary);
  server.Unary(registry, &Registry::RequestReportRun, unary);
  server.Stream(
      registry, &Registry::RequestAttach,
      [refuse](const v1::AttachRequest&, const CallInfo&,
               StreamWaker) -> absl::StatusOr<StreamPull<v1::AttachResponse>> { return refuse(); },
      Callers::kAttached);
  Jobs& jobs = server.AddService<Jobs>(Callers::kUsers);
  server.Unary(jobs, &Jobs::RequestSubmitJob, unary);
  server.Unary(jobs, &Jobs::RequestSubmitProfile, unary);
  server.Unary(jobs, &Jobs::RequestListJobs, unary);
  server.Unary(jobs, &Jobs::RequestGetJob, unary);
  server.Unary(jobs, &Jobs::RequestCancelJob, unary);
  server.Unary(jobs, &Jobs::RequestListWorkers, unary);
  server.Unary(jobs, &Jobs::RequestGetTimeline, unary);
  server.Stream(
      jobs, &Jobs::RequestWatchJob,
      [refuse](const v1::WatchJobRequest&, const CallInfo&,
               StreamWaker) -> absl::StatusOr<StreamPull<v1::JobEvent>> { return refuse(); });
  using Checkpoints = v1::CheckpointFiles::AsyncService;
  Checkpoints& checkpoints = server.AddService<Checkpoints>(Callers::kData);
  server.Unary(checkpoints, &Checkpoints::RequestWritePart, unary);
  server.Unary(checkpoints, &Checkpoints::RequestReadPart, unary);
  using Data = v1::DataService::AsyncService;
  Data& data = server.AddService<Data>(Callers::kData);
  server.Unary(data, &Data::RequestFindData, unary);
  server.Unary(data, &Data::RequestWriteData, unary);
  server.Unary(data, &Data::RequestFinishData, unary);
  server.Unary(data, &Data::RequestListData, unary);
  server.Unary(data, &Data::RequestRemoveData, unary);
  server.Unary(data, &Data::RequestReadData, unary);
}

}  // namespace penstock
