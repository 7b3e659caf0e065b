// The penstock-worker program as a process, with a coordinator that only takes registrations.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/str_split.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"
#include "services/rpc/server.h"
#include "tests/services/metrics/http_get.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Registry {
 public:
  Registry() {
    using Service = v1::WorkerRegistry::AsyncService;
    auto& service = server_.AddService<Service>();
    server_.Unary(service, &Service::RequestRegisterWorker,
                  [this](const v1::RegisterWorkerRequest& request,
                         const CallInfo&) -> absl::StatusOr<v1::RegisterWorkerResponse> {
                    MutexLock lock(mutex_);
                    if (!answer_.ok()) return answer_;
                    registered_ = request;
                    changed_.NotifyAll();
                    v1::RegisterWorkerResponse response;
                    response.set_heartbeat_interval_ms(100);
                    return response;
                  });
    server_.Unary(service, &Service::RequestHeartbeat,
                  [](const v1::HeartbeatRequest& request,
                     const CallInfo&) -> absl::StatusOr<v1::HeartbeatResponse> {
                    if (request.leaving()) return absl::NotFoundError("it has left");
                    return v1::HeartbeatResponse();
                  });
    EXPECT_THAT(server_.Start(), IsOk());
  }
  std::string address() const { return server_.address().ToString(); }
  void Answer(const absl::Status& status) {
    MutexLock lock(mutex_);
    answer_ = status;
  }
  // The worker that registered; empty after 20 s.
  v1::RegisterWorkerRequest AwaitWorker() {
    MutexLock lock(mutex_);
    const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
    while (registered_.name().empty() && changed_.WaitUntil(mutex_, until)) {
    }
    return registered_;
  }

 private:
  RpcServer server_{{.listen = {"127.0.0.1", 0}}};
  Mutex mutex_;
  CondVar changed_;
  absl::Status answer_ ABSL_GUARDED_BY(mutex_);
  v1::RegisterWorkerRequest registered_ ABSL_GUARDED_BY(mutex_);
};

// A worker process whose stderr goes to a file.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    log_ = ::testing::TempDir() + "worker-" + std::to_string(getpid()) + "-" +
           std::to_string(reinterpret_cast<uintptr_t>(this)) + ".log";
    arguments.insert(arguments.begin(), PENSTOCK_WORKER_PROGRAM);
    std::vector<char*> argv;
    argv.reserve(arguments.size());
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      const int fd = open(log_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
      dup2(fd, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    unlink(log_.c_str());
  }
  void Signal(int signal) { kill(pid_, signal); }
  // The exit code, or nothing if it has not ended within 15 s, or by a signal.
  std::optional<int> Wait() {
    for (int i = 0; i < 1500; ++i) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        if (WIFEXITED(status)) return WEXITSTATUS(status);
        return std::nullopt;
      }
      usleep(10'000);
    }
    return std::nullopt;
  }
  std::string Log() const {
    std::stringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }

 private:
  std::string log_;
  pid_t pid_ = -1;
};

std::vector<std::string> Flags(const Registry& registry) {
  return {"--coordinator", registry.address(), "--name", "test-worker", "--threads", "1",
          "--insecure"};
}

TEST(WorkerProgram, Started_RegistersAndEndsOnSigterm) {
  Registry registry;
  Process worker(Flags(registry));
  const v1::RegisterWorkerRequest registered = registry.AwaitWorker();
  EXPECT_EQ(registered.name(), "test-worker");
  EXPECT_EQ(registered.protocol_version(), v1::PROTOCOL_VERSION_CURRENT);
  EXPECT_THAT(registered.device(), HasSubstr("cpu"));
  EXPECT_NE(registered.incarnation(), 0u);
  EXPECT_GT(registered.memory_bytes(), 0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const HostPort metrics,
                                ParseHostPort(registered.metrics_address()));
  EXPECT_THAT(HttpGet(metrics.port, "/metrics"),
              HasSubstr("penstock_worker_running{worker=\"test-worker\"} 0"));
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(), 0) << worker.Log();
}

TEST(WorkerProgram, EveryLineOfTheLog_HasOneFormWithTheTimeInUtc) {
  Registry registry;  // whose gRPC looks at the environment no more
  setenv("GRPC_VERBOSITY", "debug", 1);
  Process worker(Flags(registry));
  unsetenv("GRPC_VERBOSITY");
  registry.AwaitWorker();
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(), 0);
  EXPECT_THAT(worker.Log(), HasSubstr(" test-worker: gRPC: "));
  for (const absl::string_view line : absl::StrSplit(worker.Log(), '\n', absl::SkipEmpty())) {
    EXPECT_THAT(
        std::string(line),
        ::testing::MatchesRegex("[0-9-]{10}T[0-9:]{8}[.][0-9]{3}Z [TDIWEC] test-worker: .*"));
  }
}

TEST(WorkerProgram, ControlCalls_AreAnswered) {
  Registry registry;
  Process worker(Flags(registry));
  const std::string address = registry.AwaitWorker().address();
  const auto stub =
      v1::WorkerControl::NewStub(MakeControlChannel(address, grpc::InsecureChannelCredentials()));
  using Stub = v1::WorkerControl::Stub;
  v1::StartRunRequest start;
  start.set_job_id("j");
  start.set_epoch(1);
  EXPECT_THAT(Call("worker", *stub, &Stub::StartRun, start, absl::Seconds(20)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not prepared")));
  v1::PrepareRunRequest prepare;
  prepare.set_job_id("j");
  prepare.set_epoch(1);
  EXPECT_THAT(Call("worker", *stub, &Stub::PrepareRun, prepare, absl::Seconds(20)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no stages")));
  v1::StopRunRequest stop;
  stop.set_job_id("j");
  stop.set_epoch(1);
  EXPECT_THAT(Call("worker", *stub, &Stub::StopRun, stop, absl::Seconds(20)), IsOk());
}

TEST(WorkerProgram, ParentGone_Ends) {
  Registry registry;
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  fcntl(fds[1], F_SETFD, FD_CLOEXEC);
  std::vector<std::string> flags = Flags(registry);
  flags.insert(flags.end(), {"--parent-fd", std::to_string(fds[0])});
  Process worker(flags);
  close(fds[0]);
  EXPECT_EQ(registry.AwaitWorker().name(), "test-worker");
  close(fds[1]);
  EXPECT_EQ(worker.Wait(), 0) << worker.Log();
}

TEST(WorkerProgram, OccupiedPorts_ExitTwoAndSayWhich) {
  Registry registry;
  for (const char* flag : {"--listen", "--metrics"}) {
    std::vector<std::string> flags = Flags(registry);
    flags.insert(flags.end(), {flag, registry.address()});
    Process worker(flags);
    EXPECT_EQ(worker.Wait(), 2);
    EXPECT_THAT(worker.Log(), AllOf(HasSubstr(registry.address()), HasSubstr("already in use")));
  }
}

TEST(WorkerProgram, BadUsage_ExitsTwoAndNamesTheFlag) {
  const std::vector<std::vector<std::string>> bad = {
      {"--listen", "nonsense"},  {"--threads", "0"},      {"--device", "tpu"}, {"--unknown", "1"},
      {"--listen", "0.0.0.0:0"}, {"--log-level", "loud"}, {"--name", "a\xFF"}};
  for (const auto& flags : bad) {
    Process worker(flags);
    EXPECT_EQ(worker.Wait(), 2) << flags[0];
    EXPECT_THAT(worker.Log(), HasSubstr(flags[0].substr(2)));
  }
}

TEST(WorkerProgram, CoordinatorRefuses_ExitsOneAndSaysWhy) {
  Registry registry;
  registry.Answer(absl::FailedPreconditionError("protocol version 1, expected 2"));
  Process worker(Flags(registry));
  EXPECT_EQ(worker.Wait(), 1);
  EXPECT_THAT(worker.Log(), HasSubstr("protocol version 1, expected 2"));
}

TEST(WorkerProgram, CoordinatorComesLater_IsFound) {
  std::optional<Registry> registry(std::in_place);
  const std::vector<std::string> flags = Flags(*registry);
  registry->Answer(absl::UnavailableError("starting"));
  Process worker(flags);
  usleep(300'000);
  registry->Answer(absl::OkStatus());
  EXPECT_EQ(registry->AwaitWorker().name(), "test-worker");
  worker.Signal(SIGINT);
  EXPECT_EQ(worker.Wait(), 0) << worker.Log();
}

}  // namespace
}  // namespace penstock
