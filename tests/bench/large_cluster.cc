// What a coordinator does, and how long it computes, when a third of a large cluster is lost at once.
//
// usage: large_cluster [WORKERS [JOBS]]   (1000 and 200 without)
//
// The coordinator is the real state machine. Workers, network, disk and time are simulated, so the seconds of the cluster are
// those that its rules and the delays of the simulation make (2 ms a message, 1 s a step), while the seconds of the
// coordinator are those that this machine needs. Each job has four stages on workers of its own. Half a minute after all
// train, a third of the workers, drawn at random, are killed in the same millisecond; ten minutes later they are back.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "tests/coordinator/simulated_cluster.h"

namespace penstock {
namespace {

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

v1::JobSpec OneJob(int number) {
  v1::JobSpec spec = SmallJob(/*steps=*/1200, /*stages=*/4);
  spec.mutable_checkpoint()->set_directory(absl::StrCat("/ckpt/", number));
  spec.mutable_checkpoint()->set_every_steps(10);
  return spec;
}

class Study {
 public:
  Study(int workers, int jobs)
      : workers_(workers),
        cluster_({.workers = workers,
                  .step_ms = 1000,
                  .delay_ms_min = 2,
                  .delay_ms_max = 2,
                  .attached = true,
                  .checks = false,
                  .stopwatch_ns = SteadyNs}) {
    cluster_.RunFor(5000);
    for (int job = 0; job < jobs; ++job) jobs_.push_back(cluster_.Submit(OneJob(job)));
  }

  void Run() {
    Row("submitted");
    AdvanceUntilAllTrain();
    Row("all train");
    Advance(30'000);
    Row("half a minute later");
    std::vector<int> lost = KillAThird();
    Row("a third is lost");
    for (const int64_t ms : {5, 20, 100, 1000, 4000, 60'000, 400'000}) {
      Advance(ms);
      Row(absl::StrCat("and ", ms, " ms"));
    }
    for (const int worker : lost) cluster_.Restart(worker);
    Advance(60'000);
    Row("all workers are back");
    cluster_.RunUntilOver(20'000'000);
    Row("all jobs are over");
    std::printf("\nthe longest turn of the coordinator: %.1f ms\n",
                1e-6 * static_cast<double>(cluster_.longest_turn_ns()));
    PENSTOCK_CHECK(cluster_.violations().empty());
  }

 private:
  void Advance(int64_t ms) { cluster_.RunFor(ms); }

  void AdvanceUntilAllTrain() {
    const auto all = static_cast<int64_t>(jobs_.size());
    for (int i = 0; i < 6000 && Count()[v1::JOB_STATE_RUNNING] != all; ++i) Advance(10);
  }

  std::vector<int> KillAThird() {
    std::vector<int> workers(workers_);
    std::iota(workers.begin(), workers.end(), 0);
    RandomStream random(/*seed=*/1, /*stream=*/1);
    for (size_t i = workers.size() - 1; i > 0; --i) {
      std::swap(workers[i], workers[random.Below(i + 1)]);
    }
    workers.resize(workers.size() / 3);
    for (const int worker : workers) cluster_.Kill(worker);
    return workers;
  }

  std::map<v1::JobState, int64_t> Count() {
    std::map<v1::JobState, int64_t> count;
    for (const std::string& job : jobs_) ++count[cluster_.Summary(job).state()];
    return count;
  }

  void Row(const std::string& when) {
    std::map<v1::JobState, int64_t> count = Count();
    int64_t steps = 0;
    for (const std::string& job : jobs_) steps += cluster_.Summary(job).step();
    const double seconds = 1e-9 * static_cast<double>(cluster_.now().monotonic_ns);
    const double computed_s = 1e-9 * static_cast<double>(cluster_.coordinator_ns());
    if (before_s_ == 0) {
      std::printf("%-22s %10s %8s %11s %6s %8s %14s\n", "", "time, s", "running", "recovering",
                  "ended", "steps", "coordinator, s");
    }
    const int64_t ended = count[v1::JOB_STATE_SUCCEEDED] + count[v1::JOB_STATE_FAILED];
    std::printf("%-22s %10.3f %8lld %11lld %6lld %8lld %14.3f\n", when.c_str(), seconds,
                static_cast<long long>(count[v1::JOB_STATE_RUNNING]),
                static_cast<long long>(count[v1::JOB_STATE_RECOVERING]),
                static_cast<long long>(ended), static_cast<long long>(steps),
                computed_s - before_s_);
    before_s_ = computed_s;
    std::fflush(stdout);
  }

  const int workers_;
  SimulatedCluster cluster_;
  std::vector<std::string> jobs_;
  double before_s_ = 0;
};

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const int workers = argc > 1 ? std::atoi(argv[1]) : 1000;
  const int jobs = argc > 2 ? std::atoi(argv[2]) : 200;
  penstock::Study(workers, jobs).Run();
  return 0;
}
