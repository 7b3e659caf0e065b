// What a coordinator uses, and how long it lets its callers wait, with many workers and jobs over real gRPC and TLS.
//
// usage: coordinator_load PORT CERTIFICATES PID [WORKERS [JOBS [SECONDS]]]   (1000, 200 and 30 without)
//
// The coordinator is the process PID, which listens at PORT of all addresses of this machine. CERTIFICATES is what
// `penstock certs init` made. All workers and users are in this process. Each worker has an address and a connection of its
// own, registers, keeps its Attach stream open, sends heartbeats at the interval that it is asked for, and answers the
// coordinator's orders without training anything: the last worker of a job reports a step every second. The jobs have four
// stages each. They are submitted ten a second, and a user watches each of them.
//
// A line shows each phase: the coordinator's CPU time as a part of one core and its resident memory, and for each kind of call
// how many there were, how many failed, and their median and 99th percentile in milliseconds. `news` is the time from a
// worker's report of a step until the job's watcher has it. After the phase SECONDS at full load, jobs that wait are submitted.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/heartbeat.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"
#include "services/rpc/completion_poller.h"
#include "services/rpc/connection_acceptor.h"
#include "services/rpc/grpc_process.h"
#include "services/rpc/limits.h"
#include "services/rpc/server.h"
#include "tests/job/jobs.h"

namespace penstock {
namespace {

constexpr int kServers = 16;             // of the workers together
constexpr int kWatchersPerChannel = 50;  // below rpc_limits::kConcurrentStreamsMax
constexpr int kStagesPerJob = 4;
constexpr int kWaitingJobs = 100;
constexpr absl::Duration kStepTime = absl::Seconds(1);
constexpr absl::Duration kSubmitInterval = absl::Milliseconds(100);
constexpr absl::Duration kRegisterInterval = absl::Milliseconds(5);
constexpr absl::Duration kWatchTimeout = absl::Hours(1);
constexpr uint64_t kLoadIncarnation = 4711;

// An address of this machine for each number and network.
std::string LoopbackHost(int network, int number) {
  return absl::StrCat("127.", network, ".", number / 250, ".", 1 + number % 250);
}

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const TransportSecurity& security) {
  return security.ForChannel(Role::kCoordinator);
}

TransportSecurity SecurityIn(const std::string& directory) {
  absl::StatusOr<TransportSecurity> security = TransportSecurity::Tls(directory, absl::Now());
  if (!security.ok()) {
    std::fprintf(stderr, "coordinator_load: %s\n", security.status().ToString().c_str());
    std::exit(2);
  }
  return *std::move(security);
}

// Reads a stream on the threads of a poller, and deletes itself when it has ended.
template <typename Response>
class StreamReader final : public CompletionTag {
 public:
  using OnMessage = std::function<void(const Response&)>;
  using OnEnd = std::function<void(const grpc::Status&)>;

  template <typename Stub, typename Start, typename Request>
  static void Begin(Stub& stub, Start start, const Request& request, absl::Duration timeout,
                    CompletionPoller& poller, OnMessage on_message, OnEnd on_end) {
    auto* stream = new StreamReader(std::move(on_message), std::move(on_end));
    stream->context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    stream->reader_ = (stub.*start)(&stream->context_, request, poller.queue());
    stream->reader_->StartCall(stream);
  }

  void Complete(bool ok) override {
    if (phase_ == Phase::kEnding) {
      on_end_(status_);
      delete this;
    } else if (!ok) {
      phase_ = Phase::kEnding;
      reader_->Finish(&status_, this);
    } else {
      if (phase_ == Phase::kReading) on_message_(message_);
      phase_ = Phase::kReading;
      reader_->Read(&message_, this);
    }
  }

 private:
  enum class Phase { kStarting, kReading, kEnding };

  StreamReader(OnMessage on_message, OnEnd on_end)
      : on_message_(std::move(on_message)), on_end_(std::move(on_end)) {}

  const OnMessage on_message_;
  const OnEnd on_end_;
  Phase phase_ = Phase::kStarting;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<Response>> reader_;
  grpc::Status status_;
  Response message_;
};

// The kinds of what is timed.
enum Kind { kRegister, kHeartbeat, kReport, kSubmit, kNews, kKinds };
constexpr std::array<const char*, kKinds> kKindNames = {"register", "heartbeat", "report", "submit",
                                                        "news"};

struct Timed {
  std::vector<double> took_ms;
  int failed = 0;
};

double Percentile(std::vector<double>& values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

// What the system says of another process.
class ProcessUse {
 public:
  explicit ProcessUse(int pid) : folder_(absl::StrCat("/proc/", pid)) {}

  // proc(5): utime and stime are fields 14 and 15 of stat; the second field is the program's name, in parentheses.
  double CpuSeconds() const {
    std::ifstream file(folder_ + "/stat");
    std::string text;
    std::getline(file, text);
    const size_t name_end = text.rfind(')');
    long long user = 0;
    long long system = 0;
    PENSTOCK_CHECK(name_end != std::string::npos &&
                   std::sscanf(text.c_str() + name_end + 1,
                               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld", &user,
                               &system) == 2);
    return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  double ResidentMib() const {
    std::ifstream file(folder_ + "/statm");
    double pages = 0;
    double resident = 0;
    PENSTOCK_CHECK(file >> pages >> resident);
    return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
  }

 private:
  const std::string folder_;
};

// Calls what is due, on the thread that runs it.
class Timers {
 public:
  void At(absl::Time time, std::function<void()> what) {
    MutexLock lock(mutex_);
    due_.emplace(time, std::move(what));
  }

  void RunUntil(const std::function<bool()>& is_over) {
    while (!is_over()) {
      std::function<void()> what;
      {
        MutexLock lock(mutex_);
        if (!due_.empty() && due_.begin()->first <= absl::Now()) {
          what = std::move(due_.begin()->second);
          due_.erase(due_.begin());
        }
      }
      if (what != nullptr) {
        what();
      } else {
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
  }

 private:
  Mutex mutex_;
  std::multimap<absl::Time, std::function<void()>> due_ ABSL_GUARDED_BY(mutex_);
};

class CoordinatorLoad {
 public:
  CoordinatorLoad(int port, const std::string& certificates, int pid, int workers, int jobs)
      : worker_security_(SecurityIn(certificates + "/worker")),
        client_security_(SecurityIn(certificates + "/client")),
        port_(port),
        jobs_(jobs),
        use_(pid),
        workers_(workers),
        poller_(std::make_unique<grpc::CompletionQueue>(), 1, "load") {
    for (int server = 0; server < kServers; ++server) StartServer();
    for (int worker = 0; worker < workers; ++worker) {
      workers_[worker].name = absl::StrCat("w", worker);
      workers_[worker].address =
          absl::StrCat(LoopbackHost(1, worker), ":", servers_[worker % kServers]->address().port);
      workers_[worker].registry = v1::WorkerRegistry::NewStub(
          MakeControlChannel(CoordinatorAddress(2, worker), CredentialsOf(worker_security_)));
      by_name_[workers_[worker].name] = worker;
    }
    for (int first = 0; first < jobs + kWatchersPerChannel; first += kWatchersPerChannel) {
      users_.push_back(v1::JobService::NewStub(MakeControlChannel(
          CoordinatorAddress(3, first / kWatchersPerChannel), CredentialsOf(client_security_))));
    }
  }

  void Run(absl::Duration time) {
    BeginPhase();
    for (size_t worker = 0; worker < workers_.size(); ++worker) {
      timers_.At(absl::Now() + static_cast<double>(worker) * kRegisterInterval,
                 [this, worker] { Register(static_cast<int>(worker)); });
    }
    RunUntilCount(registered_, static_cast<int>(workers_.size()));
    EndPhase("registering");
    RunFor(absl::Seconds(5));
    BeginPhase();
    RunFor(time);
    EndPhase("workers alone");
    SubmitMany(jobs_);
    RunUntilCount(training_, jobs_);
    EndPhase("submitting");
    RunFor(absl::Seconds(5));
    BeginPhase();
    RunFor(time);
    EndPhase("all jobs train");
    SubmitMany(kWaitingJobs);
    RunUntilCount(submitted_, jobs_ + kWaitingJobs);
    EndPhase("submitting more");
    std::fflush(stdout);
    // Streams and calls in progress refer to this, and nothing is left to find out.
    std::_Exit(0);
  }

 private:
  struct Worker {
    std::string name;
    std::string address;
    std::unique_ptr<v1::WorkerRegistry::Stub> registry;
    bool attached = false;
    std::string job_id;  // of its run, or empty
    int64_t epoch = 0;
  };
  struct JobOnWorkers {
    int64_t epoch = 0;
    std::vector<int> workers;  // by their index in the pipeline
    int started = 0;
    int64_t step = 0;
    int64_t sequence = 0;
    std::map<int64_t, absl::Time> reported;  // by step
  };

  std::string CoordinatorAddress(int network, int number) const {
    return absl::StrCat(LoopbackHost(network, number), ":", port_);
  }

  void StartServer() {
    servers_.push_back(std::make_unique<RpcServer>(
        RpcServerOptions{.listen = {"0.0.0.0", 0}, .security = worker_security_}));
    using Service = v1::WorkerControl::AsyncService;
    RpcServer& server = *servers_.back();
    Service& service = server.AddService<Service>(Callers::kCluster);
    server.Unary(
        service, &Service::RequestPrepareRun,
        [this](const v1::PrepareRunRequest& request, const CallInfo&) { return Prepare(request); });
    server.Unary(
        service, &Service::RequestStartRun,
        [this](const v1::StartRunRequest& request, const CallInfo&) { return Start(request); });
    server.Unary(
        service, &Service::RequestStopRun,
        [this](const v1::StopRunRequest& request, const CallInfo&) { return Stop(request); });
    const absl::Status started = server.Start();
    PENSTOCK_CHECK(started.ok());
  }

  absl::StatusOr<v1::PrepareRunResponse> Prepare(const v1::PrepareRunRequest& request) {
    MutexLock lock(mutex_);
    JobOnWorkers& job = on_workers_[request.job_id()];
    if (request.epoch() > job.epoch) {
      job = {.epoch = request.epoch()};
      for (const v1::StageAssignment& stage : request.plan().stages()) {
        job.workers.push_back(by_name_.at(stage.worker()));
      }
    }
    Worker& worker = workers_[job.workers[request.worker_index()]];
    worker.job_id = request.job_id();
    worker.epoch = request.epoch();
    v1::PrepareRunResponse response;
    response.set_schedule_digest(request.plan().schedule_digest());
    return response;
  }

  absl::StatusOr<v1::StartRunResponse> Start(const v1::StartRunRequest& request) {
    MutexLock lock(mutex_);
    JobOnWorkers& job = on_workers_[request.job_id()];
    if (++job.started == static_cast<int>(job.workers.size())) {
      ++training_;
      timers_.At(absl::Now() + kStepTime,
                 [this, id = request.job_id(), epoch = job.epoch] { ReportStep(id, epoch); });
    }
    return v1::StartRunResponse();
  }

  absl::StatusOr<v1::StopRunResponse> Stop(const v1::StopRunRequest& request) {
    MutexLock lock(mutex_);
    for (const int worker : on_workers_[request.job_id()].workers) workers_[worker].job_id.clear();
    return v1::StopRunResponse();
  }

  void Register(int number) {
    Worker& worker = workers_[number];
    v1::RegisterWorkerRequest request;
    request.set_name(worker.name);
    request.set_address(worker.address);
    request.set_incarnation(kLoadIncarnation);
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    request.set_device("cpu");
    request.set_memory_bytes(int64_t{1} << 34);
    CallAsync("coordinator", *worker.registry, &v1::WorkerRegistry::Stub::AsyncRegisterWorker,
              request, rpc_limits::kQuickCallTimeout, poller_,
              [this, number,
               since = absl::Now()](const absl::StatusOr<v1::RegisterWorkerResponse>& answer) {
                Note(kRegister, since, answer.status());
                if (!answer.ok()) {
                  timers_.At(absl::Now() + kStepTime, [this, number] { Register(number); });
                  return;
                }
                ++registered_;
                interval_ = absl::Milliseconds(answer->heartbeat_interval_ms());
                timers_.At(absl::Now() + interval_, [this, number] { Beat(number); });
                if (!std::exchange(workers_[number].attached, true)) Attach(number);
              });
  }

  void Attach(int number) {
    v1::AttachRequest request;
    request.set_name(workers_[number].name);
    request.set_incarnation(kLoadIncarnation);
    StreamReader<v1::AttachResponse>::Begin(
        *workers_[number].registry, &v1::WorkerRegistry::Stub::PrepareAsyncAttach, request,
        rpc_limits::kAttachTimeout, poller_, [](const v1::AttachResponse&) {},
        [this, number](const grpc::Status& ended) {
          if (ended.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) ++streams_lost_;
          timers_.At(absl::Now(), [this, number] { Attach(number); });
        });
  }

  void Beat(int number) {
    Worker& worker = workers_[number];
    v1::HeartbeatRequest request;
    request.set_name(worker.name);
    request.set_incarnation(kLoadIncarnation);
    {
      MutexLock lock(mutex_);
      if (!worker.job_id.empty()) {
        request.set_job_id(worker.job_id);
        request.set_epoch(worker.epoch);
        request.set_actions_done(on_workers_[worker.job_id].step);
        request.set_pulse(++pulse_);
      }
    }
    CallAsync(
        "coordinator", *worker.registry, &v1::WorkerRegistry::Stub::AsyncHeartbeat, request,
        rpc_limits::kHeartbeatCallTimeout, poller_,
        [this, number, since = absl::Now()](const absl::StatusOr<v1::HeartbeatResponse>& answer) {
          Note(kHeartbeat, since, answer.status());
          if (answer.ok() && answer->heartbeat_interval_ms() > 0) {
            interval_ = absl::Milliseconds(answer->heartbeat_interval_ms());
          }
          const bool is_unknown = absl::IsNotFound(answer.status());
          timers_.At(absl::Now() + interval_,
                     [this, number, is_unknown] { is_unknown ? Register(number) : Beat(number); });
        });
  }

  void ReportStep(const std::string& job_id, int64_t epoch) {
    v1::ReportRunRequest request;
    v1::WorkerRegistry::Stub* registry = nullptr;
    {
      MutexLock lock(mutex_);
      JobOnWorkers& job = on_workers_[job_id];
      if (job.epoch != epoch) return;  // another attempt goes on
      Worker& last = workers_[job.workers.back()];
      registry = last.registry.get();
      request.set_worker(last.name);
      request.set_incarnation(kLoadIncarnation);
      request.set_job_id(job_id);
      request.set_epoch(epoch);
      request.set_first_sequence(job.sequence++);
      v1::StepDone& step = *request.add_events()->mutable_step_done();
      step.set_step(++job.step);
      step.set_loss(2.0);
      step.set_tokens(10);
      job.reported[job.step] = absl::Now();
    }
    CallAsync("coordinator", *registry, &v1::WorkerRegistry::Stub::AsyncReportRun, request,
              rpc_limits::kQuickCallTimeout, poller_,
              [this, job_id, epoch,
               since = absl::Now()](const absl::StatusOr<v1::ReportRunResponse>& answer) {
                Note(kReport, since, answer.status());
                if (absl::IsAborted(answer.status())) return;
                timers_.At(since + kStepTime, [this, job_id, epoch] { ReportStep(job_id, epoch); });
              });
  }

  void SubmitMany(int count) {
    BeginPhase();
    for (int job = 0; job < count; ++job) {
      timers_.At(absl::Now() + job * kSubmitInterval, [this] { Submit(); });
    }
  }

  void Submit() {
    const int number = submissions_++;
    v1::SubmitJobRequest request;
    v1::JobSpec& spec = *request.mutable_spec();
    spec = SmallJob(/*steps=*/1'000'000, kStagesPerJob);
    spec.set_name(absl::StrCat("load-", number));
    request.set_idempotency_key(spec.name());
    CallAsync(
        "coordinator", *users_.front(), &v1::JobService::Stub::AsyncSubmitJob, request,
        rpc_limits::kQuickCallTimeout, poller_,
        [this, number, since = absl::Now()](const absl::StatusOr<v1::SubmitJobResponse>& answer) {
          Note(kSubmit, since, answer.status());
          ++submitted_;
          if (answer.ok() && number < jobs_) Watch(answer->job_id(), number);
        });
  }

  void Watch(const std::string& job_id, int number) {
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    StreamReader<v1::JobEvent>::Begin(
        *users_[1 + number / kWatchersPerChannel], &v1::JobService::Stub::PrepareAsyncWatchJob,
        request, kWatchTimeout, poller_,
        [this, job_id](const v1::JobEvent& event) {
          if (!event.has_step_done()) return;
          MutexLock lock(mutex_);
          auto& reported = on_workers_[job_id].reported;
          const auto found = reported.find(event.step_done().step());
          if (found == reported.end()) return;
          timed_[kNews].took_ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - found->second));
          reported.erase(found);
        },
        [this](const grpc::Status&) { ++streams_lost_; });
  }

  void Note(Kind kind, absl::Time since, const absl::Status& status) {
    MutexLock lock(mutex_);
    if (!status.ok()) {
      if (timed_[kind].failed++ == 0) {
        std::fprintf(stderr, "%s: %s\n", kKindNames[kind], status.ToString().c_str());
      }
      return;
    }
    timed_[kind].took_ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - since));
  }

  void RunFor(absl::Duration time) {
    const absl::Time end = absl::Now() + time;
    timers_.RunUntil([end] { return absl::Now() >= end; });
  }

  void RunUntilCount(const std::atomic<int>& count, int wanted) {
    const absl::Time give_up = absl::Now() + absl::Minutes(2);
    timers_.RunUntil([&] { return count >= wanted || absl::Now() > give_up; });
    if (count < wanted) std::printf("after two minutes: %d of %d\n", count.load(), wanted);
  }

  void BeginPhase() {
    MutexLock lock(mutex_);
    timed_ = {};
    streams_lost_ = 0;
    phase_since_ = absl::Now();
    phase_cpu_s_ = use_.CpuSeconds();
  }

  void EndPhase(const std::string& phase) {
    MutexLock lock(mutex_);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - phase_since_);
    std::printf("%s: %.1f s, %.3f of a core, %.0f MiB, %d streams lost\n", phase.c_str(), seconds,
                (use_.CpuSeconds() - phase_cpu_s_) / seconds, use_.ResidentMib(),
                streams_lost_.load());
    for (int kind = 0; kind < kKinds; ++kind) {
      Timed& timed = timed_[kind];
      if (timed.took_ms.empty() && timed.failed == 0) continue;
      std::printf("  %-10s %6zu, %d failed, p50 %.1f ms, p99 %.1f ms\n", kKindNames[kind],
                  timed.took_ms.size(), timed.failed, Percentile(timed.took_ms, 0.5),
                  Percentile(timed.took_ms, 0.99));
    }
    std::fflush(stdout);
  }

  const TransportSecurity worker_security_;
  const TransportSecurity client_security_;
  const int port_;
  const int jobs_;
  const ProcessUse use_;
  Timers timers_;
  std::map<std::string, int> by_name_;
  std::vector<std::unique_ptr<v1::JobService::Stub>> users_;  // the first one submits
  std::atomic<absl::Duration> interval_ = absl::Milliseconds(kHeartbeatIntervalMs);
  std::atomic<int> registered_ = 0;
  std::atomic<int> submissions_ = 0;
  std::atomic<int> submitted_ = 0;
  std::atomic<int> training_ = 0;
  std::atomic<int> streams_lost_ = 0;
  absl::Time phase_since_;
  double phase_cpu_s_ = 0;

  Mutex mutex_;
  std::vector<Worker> workers_;  // the runs of them are guarded by mutex_
  std::map<std::string, JobOnWorkers> on_workers_ ABSL_GUARDED_BY(mutex_);
  std::array<Timed, kKinds> timed_ ABSL_GUARDED_BY(mutex_);
  int64_t pulse_ ABSL_GUARDED_BY(mutex_) = 0;

  CompletionPoller poller_;
  std::vector<std::unique_ptr<RpcServer>> servers_;
};

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc < 4 || argc > 7) {
    std::fputs("usage: coordinator_load PORT CERTIFICATES PID [WORKERS [JOBS [SECONDS]]]\n",
               stderr);
    return 2;
  }
  const auto number = [&](int index, int otherwise) {
    return argc > index ? std::atoi(argv[index]) : otherwise;
  };
  penstock::RaiseDescriptorLimit();
  penstock::PrepareProcessForGrpc();
  penstock::CoordinatorLoad load(number(1, 0), argv[2], number(3, 0), number(4, 1000),
                                 number(5, 200));
  load.Run(absl::Seconds(number(6, 30)));
  return 0;
}
