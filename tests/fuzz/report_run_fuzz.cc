// Reports of a worker that may be broken or hostile, to a coordinator whose job of two stages trains: it refuses them or
// goes on, its invariants hold, and the job keeps no more than its plan has room for.
//
// An input is a ReportRunRequest. Who reports of what is put right, and so is the number of its first event if it is 0.
#include <string>

#include "penstock/v1/cluster.pb.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

constexpr int64_t kFuzzedRecordBytesMax = int64_t{1} << 20;

v1::JobSpec FuzzedJob() {
  v1::JobSpec spec = SmallJob(1000, 2);
  spec.mutable_checkpoint()->set_directory("/ckpt");
  spec.mutable_checkpoint()->set_every_steps(10);
  return spec;
}

// Later than every deadline of a job.
constexpr int64_t kFuzzedWaitNs = int64_t{3'600'000} * kNsPerMs;

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(report_run) {
  using namespace penstock;
  v1::ReportRunRequest report;
  if (!report.ParseFromArray(data, static_cast<int>(size))) return 0;
  SimulatedCluster cluster({.workers = 2});
  cluster.RunFor(10);
  const std::string job = cluster.Submit(FuzzedJob());
  cluster.RunFor(1500);
  Coordinator& coordinator = cluster.coordinator();
  const JobRun* const run = coordinator.FindRun(job);
  PENSTOCK_CHECK(run != nullptr && run->state() == v1::JOB_STATE_RUNNING);
  // The worker with the last stage, which tells of steps, or the other one.
  const int32_t index = report.worker() == "w0" ? 0 : 1;
  report.set_worker(index == 0 ? "w0" : "w1");
  report.set_incarnation(100 + static_cast<uint64_t>(index));
  report.set_job_id(job);
  report.set_epoch(run->epoch());
  if (report.first_sequence() == 0) report.set_first_sequence(run->NextSequence(index));
  if (coordinator.ReportRun(report, cluster.now()).ok()) FuzzAccepted();
  cluster.PerformEffects();
  PENSTOCK_CHECK(coordinator.CheckInvariants().ok());
  const v1::GetJobResponse& saved = cluster.Saved(job);
  PENSTOCK_CHECK(static_cast<int64_t>(saved.ByteSizeLong()) <= kFuzzedRecordBytesMax);
  v1::GetJobResponse read;
  PENSTOCK_CHECK(read.ParseFromString(saved.SerializeAsString()));
  Now later = cluster.now();
  later.monotonic_ns += kFuzzedWaitNs;
  coordinator.Tick(later);
  PENSTOCK_CHECK(coordinator.CheckInvariants().ok());
  return 0;
}
