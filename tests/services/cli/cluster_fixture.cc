#include "tests/services/cli/cluster_fixture.h"

#include <algorithm>
#include <utility>

namespace penstock {

void ClusterFixture::MakeCertificates() {
  const ProcessResult made =
      RunProcess({ProgramPath("penstock"), "certs", "init", "-o", certificates()});
  ASSERT_EQ(made.exit_code, 0) << made.err;
}

void ClusterFixture::SetUp() {
  MakeCertificates();
  StartCoordinator("127.0.0.1:0");
  StartWorker();
  StartWorker();
  ASSERT_TRUE(Eventually([&] { return RunJson({"workers"}).size() == 2; })) << address_;
}

void ClusterFixture::StartCoordinator(const std::string& listen) {
  std::vector<std::string> command = {ProgramPath("penstock-coordinator"),
                                      "--listen",
                                      listen,
                                      "--metrics",
                                      "off",
                                      "--state",
                                      job_.path("state.sqlite"),
                                      "--checkpoint-root",
                                      job_.path(),
                                      "--certificates",
                                      certificates("coordinator")};
  command.insert(command.end(), coordinator_flags_.begin(), coordinator_flags_.end());
  coordinator_ = std::make_unique<Process>(command);
  address_ = AwaitAddress(*coordinator_, "listens on ");  // the port may be the system's choice
}

void ClusterFixture::StartWorker(std::vector<std::string> more) {
  worker_flags_.push_back(std::move(more));
  workers_.push_back(MakeWorker(workers_.size()));
}

void ClusterFixture::RestartWorker(size_t worker) { workers_[worker] = MakeWorker(worker); }

std::unique_ptr<Process> ClusterFixture::MakeWorker(size_t worker) const {
  std::vector<std::string> command = {ProgramPath("penstock-worker"),
                                      "--coordinator",
                                      address_,
                                      "--listen",
                                      "127.0.0.1:0",
                                      "--name",
                                      "worker-" + std::to_string(worker),
                                      "--data-root",
                                      job_.path(),
                                      "--threads",
                                      "1",
                                      "--metrics",
                                      "off",
                                      "--certificates",
                                      certificates("worker")};
  const std::vector<std::string>& more = worker_flags_[worker];
  if (std::find(more.begin(), more.end(), "--checkpoint-root") == more.end()) {
    command.insert(command.end(), {"--checkpoint-root", job_.path()});
  }
  command.insert(command.end(), more.begin(), more.end());
  return std::make_unique<Process>(std::move(command));
}

std::vector<std::string> ClusterFixture::Reaching(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), ProgramPath("penstock"));
  arguments.insert(arguments.end(),
                   {"--coordinator", address_, "--certificates", certificates("client")});
  return arguments;
}

Json ClusterFixture::RunJson(std::vector<std::string> arguments) const {
  arguments.push_back("--json");
  const ProcessResult result = Run(std::move(arguments));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

}  // namespace penstock
