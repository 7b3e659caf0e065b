#include "tests/services/coordinator/real_etcd.h"

#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace penstock {
namespace {

// Returns the path of the program, or nothing if it is in no directory of PATH.
std::string FindEtcd() {
  const char* const path = std::getenv("PATH");
  for (const absl::string_view directory : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string program = absl::StrCat(directory, "/etcd");
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

}  // namespace

HostPort UnusedAddress() {
  HostPort found;
  const absl::StatusOr<int> listener = OpenListener({"127.0.0.1", 0}, found);
  EXPECT_TRUE(listener.ok()) << listener.status();
  if (listener.ok()) close(*listener);
  return found;
}

RealEtcd::RealEtcd() : client_address_(UnusedAddress()) {
  const std::string program = FindEtcd();
  if (program.empty()) {
    ADD_FAILURE() << "there is no etcd in PATH; install the package etcd-server (packages.txt)";
    return;
  }
  const std::string clients = absl::StrCat("http://", client_address_.ToString());
  const std::string peers = absl::StrCat("http://", UnusedAddress().ToString());
  process_ = std::make_unique<Process>(std::vector<std::string>{
      program, "--name=test", absl::StrCat("--data-dir=", (directory_.path() / "data").string()),
      absl::StrCat("--listen-client-urls=", clients),
      absl::StrCat("--advertise-client-urls=", clients), absl::StrCat("--listen-peer-urls=", peers),
      absl::StrCat("--initial-advertise-peer-urls=", peers),
      absl::StrCat("--initial-cluster=test=", peers)});
  const std::unique_ptr<EtcdClient> client = NewClient();
  etcdserverpb::RangeRequest request;
  request.set_key("/");
  ok_ = Eventually([&] { return client->Range(request, absl::Seconds(1)).ok(); },
                   std::chrono::seconds(60));
  EXPECT_TRUE(ok_) << "etcd does not answer: " << process_->err();
}

std::unique_ptr<EtcdClient> RealEtcd::NewClient() const {
  return std::make_unique<EtcdClient>(std::vector<HostPort>{client_address_},
                                      grpc::InsecureChannelCredentials());
}

void RealEtcd::Freeze() const { process_->Signal(SIGSTOP); }
void RealEtcd::Thaw() const { process_->Signal(SIGCONT); }

}  // namespace penstock
