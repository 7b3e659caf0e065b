// A coordinator and workers as processes, secured as users would, and everybody who might call them.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/access.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"
#include "services/rpc/transport_security.h"
#include "services/security/aes_instructions.h"
#include "tests/services/cli/job_directory.h"
#include "tests/services/security/credentials.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

// Most memory a process had at one time, in bytes.
int64_t PeakMemory(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) << 10;
  }
  return -1;
}

// The serial number of the certificate that a server shows to a new connection, or nothing.
std::string SerialAt(const std::string& address) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  const openssl::BioPtr connection(BIO_new_ssl_connect(context.get()));
  BIO_set_conn_hostname(connection.get(), address.c_str());
  if (BIO_do_connect(connection.get()) != 1) return "";
  SSL* ssl = nullptr;
  BIO_get_ssl(connection.get(), &ssl);
  const openssl::CertificatePtr certificate(SSL_get1_peer_certificate(ssl));
  if (certificate == nullptr) return "";
  const absl::StatusOr<CertificateFacts> facts = FactsOf(*certificate);
  return facts.ok() ? facts->serial : "";
}

class ClusterSecurityTest : public ::testing::Test {
 protected:
  void StartCluster(int workers) {
    for (const Role role : {Role::kCoordinator, Role::kWorker, Role::kClient, Role::kMonitor}) {
      credentials_[role] = authority_.Issue(role);
    }
    coordinator_ = std::make_unique<Process>(std::vector<std::string>{
        ProgramPath("penstock-coordinator"), "--listen", "127.0.0.1:0", "--metrics", "off",
        "--state", job_.path("state.sqlite"), "--checkpoint-root", job_.path(), "--reflection",
        "--certificates", credentials_[Role::kCoordinator]});
    coordinator_address_ = AwaitAddress(*coordinator_, "listens on ");
    for (int i = 0; i < workers; ++i) {
      const std::string name = absl::StrCat("worker-", i);
      workers_.push_back(std::make_unique<Process>(std::vector<std::string>{
          ProgramPath("penstock-worker"), "--coordinator", coordinator_address_, "--name", name,
          "--data-root", job_.path(), "--checkpoint-root", job_.path(), "--threads", "1",
          "--metrics", "off", "--certificates", credentials_[Role::kWorker]}));
      worker_address_ = AwaitAddress(*workers_.back(), "worker " + name + " on ");
    }
  }

  ProcessResult Penstock(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), ProgramPath("penstock"));
    arguments.insert(arguments.end(), {"--coordinator", coordinator_address_, "--certificates",
                                       credentials_.at(Role::kClient)});
    return RunProcess(arguments);
  }

  TestAuthority authority_;
  std::map<Role, std::string> credentials_;
  JobDirectory job_;
  std::unique_ptr<Process> coordinator_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::string coordinator_address_;
  std::string worker_address_;  // of the last
};

// A call with an empty message; how it ends. Streams that would go on end after `timeout`.
grpc::StatusCode CodeOf(const std::string& address,
                        const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                        const std::string& method, absl::Duration timeout = absl::Seconds(20)) {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  grpc::GenericStub stub(grpc::CreateCustomChannel(address, credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  grpc::CompletionQueue queue;
  const grpc::ByteBuffer request(nullptr, 0);
  grpc::ByteBuffer response;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  return status.error_code();
}

std::shared_ptr<grpc::ChannelCredentials> With(const std::string& authorities,
                                               const CertificatePem& own) {
  return grpc::SslCredentials({authorities, own.key, own.certificate});
}

// The services of each program; the health service is on both.
bool IsOfCoordinator(absl::string_view method) {
  return absl::StrContains(method, "JobService") || absl::StrContains(method, "DataService") ||
         absl::StrContains(method, "CheckpointFiles") ||
         absl::StrContains(method, "WorkerRegistry") || absl::StrContains(method, "Reflection");
}

// Who may call what, in words of their own.
std::string AllowedRole(absl::string_view method) {
  if (absl::StrContains(method, "ReadData")) return "worker";
  if (absl::StrContains(method, "JobService") || absl::StrContains(method, "DataService") ||
      absl::StrContains(method, "Reflection")) {
    return "client";
  }
  if (absl::StrContains(method, "WorkerRegistry") || absl::StrContains(method, "TensorStream") ||
      absl::StrContains(method, "SnapshotPeers") || absl::StrContains(method, "CheckpointFiles")) {
    return "worker";
  }
  return absl::StrContains(method, "WorkerControl") ? "coordinator" : "all";
}

TEST_F(ClusterSecurityTest, EveryCall_ByEveryIdentity_IsHeardOrRefusedAsItShould) {
  StartCluster(1);
  const std::string ca = ReadCredentials(credentials_[Role::kClient])->authorities;
  const TestAuthority stranger;
  // Good for an hour, two hours ago.
  const std::string expired =
      authority_.Issue(Role::kClient, "late", absl::Hours(1), absl::Now() - absl::Hours(2));
  std::map<std::string, std::shared_ptr<grpc::ChannelCredentials>> callers = {
      {"plain text", grpc::InsecureChannelCredentials()},
      {"none", grpc::SslCredentials({ca, "", ""})},
      {"wrong CA", With(ca, ReadCredentials(stranger.Issue(Role::kClient))->own)},
      {"expired", With(ca, ReadCredentials(expired)->own)}};
  for (const auto& [role, directory] : credentials_) {
    callers[RoleName(role)] = With(ca, ReadCredentials(directory)->own);
  }
  int calls = 0;
  for (const AccessRule& rule : AccessTable()) {
    const std::string method(rule.method);
    for (const std::string& address : {coordinator_address_, worker_address_}) {
      const bool here = absl::StrContains(method, "Health") ||
                        IsOfCoordinator(method) == (address == coordinator_address_);
      for (const auto& [caller, channel] : callers) {
        SCOPED_TRACE(absl::StrCat(method, " of ", address, " by ", caller));
        const bool known = ParseRole(caller).ok();
        const bool allowed =
            known && (AllowedRole(method) == "all" || AllowedRole(method) == caller);
        // A stream that is granted goes on until it is given up.
        const bool goes_on = allowed && absl::EndsWith(method, "/Watch");
        const grpc::StatusCode code =
            CodeOf(address, channel, method, absl::Seconds(goes_on ? 1 : 20));
        ++calls;
        if (!known) {
          EXPECT_EQ(code, grpc::StatusCode::UNAVAILABLE) << "not let in at all";
        } else if (!allowed) {
          EXPECT_EQ(code, grpc::StatusCode::PERMISSION_DENIED);
        } else if (here) {
          EXPECT_THAT(code,
                      Not(AnyOf(grpc::StatusCode::PERMISSION_DENIED,
                                grpc::StatusCode::UNAUTHENTICATED, grpc::StatusCode::UNAVAILABLE)));
        }
      }
    }
  }
  EXPECT_EQ(calls, static_cast<int>(AccessTable().size()) * 2 * 8);
  EXPECT_EQ(CodeOf(coordinator_address_, callers["client"], "/penstock.v1.JobService/Erase"),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(coordinator_->err(),
              HasSubstr("refused a call: spiffe://penstock/coordinator may not"));
}

TEST_F(ClusterSecurityTest, WorkerWithANamedCertificate_RegistersUnderThatNameAlone) {
  StartCluster(1);
  const std::string named = authority_.Issue(Role::kWorker, "gpu-7");
  Process impostor({ProgramPath("penstock-worker"), "--coordinator", coordinator_address_, "--name",
                    "worker-9", "--threads", "1", "--metrics", "off", "--certificates", named});
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(impostor.err(), "may not speak for the worker worker-9");
  })) << impostor.err();
  Process honest({ProgramPath("penstock-worker"), "--coordinator", coordinator_address_, "--name",
                  "gpu-7", "--threads", "1", "--metrics", "off", "--certificates", named});
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(honest.err(), "registered with"); }))
      << honest.err();
  EXPECT_THAT(honest.err(), HasSubstr(TextOf(AesInstructionsOfThisCpu())));
}

TEST_F(ClusterSecurityTest, CoordinatorWithoutItsRole_IsNotBelieved) {
  StartCluster(0);
  Process impostor({ProgramPath("penstock-coordinator"), "--listen", "127.0.0.1:0", "--metrics",
                    "off", "--state", job_.path("other.sqlite"), "--certificates",
                    credentials_[Role::kClient]});
  const std::string address = AwaitAddress(impostor, "listens on ");
  const ProcessResult result = RunProcess({ProgramPath("penstock"), "list", "--coordinator",
                                           address, "--certificates", credentials_[Role::kClient]});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("expected spiffe://penstock/coordinator"));
}

// PENSTOCK_ROTATIONS: how many; 100 take about two minutes, since files are looked at every second.
TEST_F(ClusterSecurityTest, CertificatesRotatedWhileAJobRuns_NoStepFails) {
  const char* const wanted = std::getenv("PENSTOCK_ROTATIONS");
  int rotations = 4;
  if (wanted != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(wanted, &rotations));
  }
  StartCluster(2);
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Penstock({"workers"}).out, "worker-1"); }));
  const ProcessResult submitted =
      Penstock({"submit", job_.job(), "--no-wait", "--steps", "10000000", "--set",
                "validation.every_steps=0", "--json"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string id = Json::parse(submitted.out)["job_id"];
  const auto status = [&] {
    return Json::parse(Penstock({"status", id, "--json"}).out, nullptr, /*allow_exceptions=*/false);
  };
  ASSERT_TRUE(Eventually([&] { return status().value("state", "") == "running"; }));

  int64_t step = 0;
  for (int i = 0; i < rotations; ++i) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto issued,
                                  authority_.Open().Rotate(absl::Hours(1), absl::Now()));
    std::string serial;
    for (const auto& one : issued) {
      if (one.facts.identity.role == Role::kCoordinator) serial = one.facts.serial;
    }
    // A new connection sees the new certificate, and the command line has its own by now.
    ASSERT_TRUE(Eventually([&] { return SerialAt(coordinator_address_) == serial; }))
        << "rotation " << i;
    const Json now = status();
    ASSERT_EQ(now.value("state", ""), "running") << now;
    const int64_t reached = now["step"];
    EXPECT_GE(reached, step);
    step = reached;
  }
  EXPECT_EQ(Penstock({"cancel", id}).exit_code, 0);
  ASSERT_TRUE(Eventually([&] { return status().value("state", "") == "cancelled"; }));
  const std::string log = Penstock({"logs", id}).out;
  EXPECT_THAT(log, Not(HasSubstr("failed")));
  EXPECT_THAT(log, Not(HasSubstr("lost")));
}

// 1 GiB of zeros in about 1 MiB on the wire, by somebody who may call.
TEST_F(ClusterSecurityTest, DecompressionBomb_RaisesNobodysMemory) {
  StartCluster(1);
  constexpr int64_t kGrowthMax = 64 << 20;
  const std::string ca = ReadCredentials(credentials_[Role::kClient])->authorities;
  const std::string zeros(4 << 20, '\0');
  const std::vector<grpc::Slice> pieces(
      256, grpc::Slice(zeros.data(), zeros.size(), grpc::Slice::STATIC_SLICE));
  struct Target {
    std::string address;
    std::string method;
    Role caller;
    pid_t pid;
  };
  for (const Target& target : {Target{coordinator_address_, "/penstock.v1.JobService/SubmitJob",
                                      Role::kClient, coordinator_->pid()},
                               Target{worker_address_, "/penstock.v1.WorkerControl/PrepareRun",
                                      Role::kCoordinator, workers_[0]->pid()}}) {
    SCOPED_TRACE(target.method);
    const int64_t before = PeakMemory(target.pid);
    ASSERT_GT(before, 0);
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("localhost");
    arguments.SetMaxSendMessageSize(-1);
    const auto channel = grpc::CreateCustomChannel(
        target.address, With(ca, ReadCredentials(credentials_[target.caller])->own), arguments);
    const auto until = absl::ToChronoTime(absl::Now() + absl::Seconds(50));
    // Compressing takes the thread that else would end the handshake in its time.
    ASSERT_TRUE(channel->WaitForConnected(until));
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(until);
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    grpc::CompletionQueue queue;
    const grpc::ByteBuffer request(pieces.data(), pieces.size());
    grpc::ByteBuffer response;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(&context, target.method, request, &queue);
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
    EXPECT_LT(PeakMemory(target.pid) - before, kGrowthMax);
  }
}

// gRPC looks at a message's size only when it has all of it.
TEST_F(ClusterSecurityTest, MessagesFarOverTheLimit_RaiseTheCoordinatorsMemoryByLittle) {
  StartCluster(0);
  constexpr int kCalls = 6;
  constexpr int64_t kGrowthMax = 64 << 20;
  const std::string ca = ReadCredentials(credentials_[Role::kClient])->authorities;
  const std::string zeros(4 << 20, '\0');
  const std::vector<grpc::Slice> pieces(
      75, grpc::Slice(zeros.data(), zeros.size(), grpc::Slice::STATIC_SLICE));
  const grpc::ByteBuffer request(pieces.data(), pieces.size());
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // each has a connection of its own
  struct LargeCall {
    std::unique_ptr<grpc::GenericStub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
  };
  const auto until = absl::ToChronoTime(absl::Now() + absl::Seconds(50));
  grpc::CompletionQueue queue;
  const auto send_all = [&](std::vector<LargeCall>& calls, const grpc::ByteBuffer& request) {
    for (LargeCall& call : calls) {
      call.context.set_deadline(until);
      call.reader = call.stub->PrepareUnaryCall(&call.context, "/penstock.v1.JobService/SubmitJob",
                                                request, &queue);
      call.reader->StartCall();
      call.reader->Finish(&call.response, &call.status, nullptr);
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      void* tag = nullptr;
      bool ok = false;
      ASSERT_TRUE(queue.Next(&tag, &ok));
    }
    for (const LargeCall& call : calls) EXPECT_FALSE(call.status.ok());
  };
  std::vector<LargeCall> first(kCalls);
  std::vector<LargeCall> calls(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    const auto channel = grpc::CreateCustomChannel(
        coordinator_address_, With(ca, ReadCredentials(credentials_[Role::kClient])->own),
        arguments);
    ASSERT_TRUE(channel->WaitForConnected(until));
    first[i].stub = std::make_unique<grpc::GenericStub>(channel);
    calls[i].stub = std::make_unique<grpc::GenericStub>(channel);
  }
  // What any first call costs, pages of the program above all, is no cost of large ones.
  const grpc::Slice no_job("no job");
  send_all(first, grpc::ByteBuffer(&no_job, 1));
  const int64_t before = PeakMemory(coordinator_->pid());
  ASSERT_GT(before, 0);
  send_all(calls, request);
  EXPECT_LT(PeakMemory(coordinator_->pid()) - before, kGrowthMax);
  EXPECT_EQ(Penstock({"list"}).exit_code, 0);
}

TEST_F(ClusterSecurityTest, JobThatNamesFilesElsewhere_IsRefused) {
  StartCluster(2);
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Penstock({"workers"}).out, "worker-1"); }));
  const JobDirectory elsewhere;
  const ProcessResult data =
      Penstock({"submit", job_.job(), "--data", elsewhere.path("input.txt")});
  EXPECT_EQ(data.exit_code, 1);
  EXPECT_THAT(data.err, HasSubstr("leads out of the directories"));
  const ProcessResult checkpoint =
      Penstock({"submit", job_.job(), "--set", "checkpoint.directory=" + elsewhere.path("stolen")});
  EXPECT_EQ(checkpoint.exit_code, 2) << "the coordinator refuses it before there is a job";
  EXPECT_THAT(checkpoint.err, HasSubstr("leads out of the directories"));
  EXPECT_FALSE(std::filesystem::exists(elsewhere.path("stolen")));
}

// A text is read below the data root alone, and a checkpoint written below the other.
TEST_F(ClusterSecurityTest, DataRootAndCheckpointRoot_AreKeptApart) {
  StartCluster(0);
  const JobDirectory data;
  std::filesystem::create_directory(data.path("below"));
  std::filesystem::copy_file(data.path("input.txt"), data.path("below/text.txt"));
  workers_.push_back(std::make_unique<Process>(std::vector<std::string>{
      ProgramPath("penstock-worker"), "--coordinator", coordinator_address_, "--name", "worker-0",
      // Relative and with "..", as a user may write it.
      "--data-root", std::filesystem::relative(data.path()).string() + "/below/../below",
      "--checkpoint-root", job_.path(), "--threads", "1", "--metrics", "off", "--certificates",
      credentials_[Role::kWorker]}));
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Penstock({"workers"}).out, "worker-0"); }));
  const std::vector<std::string> submit = {"submit", job_.job(), "--set", "pipeline.stages=1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), submit.begin(), submit.end());
    return Penstock(more);
  };
  const ProcessResult checkpoints = with({"--data", job_.path("input.txt")});
  EXPECT_EQ(checkpoints.exit_code, 1);
  EXPECT_THAT(checkpoints.err, HasSubstr("leads out of the directories"));
  // The client has no such file, so the worker is the first to look at it.
  const ProcessResult inside = with(
      {"--set", "data.text.path=text.txt", "--set", "data.text.sha256=" + std::string(64, '0')});
  EXPECT_EQ(inside.exit_code, 1);
  EXPECT_THAT(inside.err, HasSubstr("SHA-256 is")) << "found below a root with ..";
}

TEST_F(ClusterSecurityTest, WorkerWithoutRoots_ReadsNothingAndNamesTheFlag) {
  StartCluster(0);
  workers_.push_back(std::make_unique<Process>(std::vector<std::string>{
      ProgramPath("penstock-worker"), "--coordinator", coordinator_address_, "--name", "worker-0",
      "--threads", "1", "--metrics", "off", "--certificates", credentials_[Role::kWorker]}));
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Penstock({"workers"}).out, "worker-0"); }));
  const ProcessResult refused = Penstock({"submit", job_.job(), "--set", "pipeline.stages=1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--data-root"));
}

TEST_F(ClusterSecurityTest, SubmissionsAndCancellations_AreWrittenDownWithTheirCaller) {
  StartCluster(0);
  const ProcessResult submitted = Penstock({"submit", job_.job(), "--no-wait", "--json"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string id = Json::parse(submitted.out)["job_id"];
  EXPECT_EQ(Penstock({"cancel", id}).exit_code, 0);
  EXPECT_EQ(Penstock({"cancel", "nobody-1"}).exit_code, 2);
  EXPECT_EQ(Penstock({"list"}).exit_code, 0);

  std::ifstream file(job_.path("state.sqlite.audit.jsonl"));
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 6u) << "each before and after it was done";
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"submit", id}, {"cancel", id}, {"cancel", "nobody-1"}};
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool before = i % 2 == 0;
    EXPECT_EQ(lines[i]["outcome"] == "requested", before);
    EXPECT_EQ(lines[i]["action"], expected[i / 2].first);
    if (i > 0) {  // the first has none yet
      EXPECT_EQ(lines[i]["job_id"], expected[i / 2].second);
    }
    EXPECT_EQ(lines[i]["caller"], "spiffe://penstock/client");
    EXPECT_THAT(lines[i]["peer"].get<std::string>(), HasSubstr("127.0.0.1"));
  }
  EXPECT_EQ(lines[1]["outcome"], "OK");
  EXPECT_THAT(lines[5]["outcome"].get<std::string>(), HasSubstr("NOT_FOUND"));
}

TEST(ProgramSecurityTest, WithoutCertificates_NothingStartsAndTheErrorSaysWhatToDo) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{ProgramPath("penstock-coordinator"), "--listen", "127.0.0.1:0"},
        std::vector<std::string>{ProgramPath("penstock-worker")},
        std::vector<std::string>{ProgramPath("penstock"), "list"}}) {
    const ProcessResult result = RunProcess(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("penstock certs init")) << arguments[0];
  }
}

TEST(ProgramSecurityTest, PlainText_IsForThisMachineUnlessASecondFlagSaysSo) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{ProgramPath("penstock-coordinator"), "--listen", "0.0.0.0:0"},
        std::vector<std::string>{ProgramPath("penstock-coordinator"), "--listen", "127.0.0.1:0",
                                 "--metrics", "0.0.0.0:0"},
        std::vector<std::string>{ProgramPath("penstock-worker"), "--coordinator", "10.0.0.1:7070"},
        std::vector<std::string>{ProgramPath("penstock"), "list", "--coordinator", "node1:7070"}}) {
    std::vector<std::string> insecure = arguments;
    insecure.push_back("--insecure");
    const ProcessResult result = RunProcess(insecure);
    EXPECT_EQ(result.exit_code, 2) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("--insecure-network")) << arguments[0];
  }
  const JobDirectory directory;
  Process coordinator({ProgramPath("penstock-coordinator"), "--listen", "0.0.0.0:0", "--metrics",
                       "off", "--state", directory.path("state"), "--insecure-network"});
  AwaitAddress(coordinator, "listens on ");
}

TEST(ProgramSecurityTest, HealthForProbes_IsPlainAndAlone) {
  const TestAuthority authority;
  const JobDirectory directory;
  Process coordinator({ProgramPath("penstock-coordinator"), "--listen", "127.0.0.1:0", "--metrics",
                       "off", "--state", directory.path("state"), "--health", "127.0.0.1:0",
                       "--certificates", authority.Issue(Role::kCoordinator)});
  const std::string health = AwaitAddress(coordinator, "health at ");
  const auto plain = grpc::InsecureChannelCredentials();
  EXPECT_EQ(CodeOf(health, plain, "/grpc.health.v1.Health/Check"), grpc::StatusCode::OK);
  EXPECT_EQ(CodeOf(health, plain, "/penstock.v1.JobService/ListJobs"),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace penstock
