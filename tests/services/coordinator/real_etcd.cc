#include "tests/services/coordinator/real_etcd.h"

#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

RealEtcd::RealEtcd(size_t members) : program_(FindEtcd()) {
  for (size_t i = 0; i < members; ++i) {
    members_.push_back({.clients = UnusedAddress(), .peers = UnusedAddress(), .process = nullptr});
  }
  if (program_.empty()) {
    ADD_FAILURE() << "there is no etcd in PATH; install the package etcd-server (packages.txt)";
    return;
  }
  for (size_t i = 0; i < members; ++i) Start(i);
  ok_ = true;
  for (size_t i = 0; i < members; ++i) {
    const bool answers = Eventually([&] { return Answers(i); }, std::chrono::seconds(60));
    EXPECT_TRUE(answers) << "etcd does not answer: " << members_[i].process->err();
    ok_ &= answers;
  }
}

void RealEtcd::Start(size_t member) {
  const auto name_of = [](size_t i) { return absl::StrCat("member-", i); };
  const auto url_of = [](const HostPort& address) {
    return absl::StrCat("http://", address.ToString());
  };
  std::vector<std::string> all;
  for (size_t i = 0; i < size(); ++i) {
    all.push_back(absl::StrCat(name_of(i), "=", url_of(members_[i].peers)));
  }
  Member& one = members_[member];
  one.process = std::make_unique<Process>(std::vector<std::string>{
      program_, absl::StrCat("--name=", name_of(member)),
      absl::StrCat("--data-dir=", (directory_.path() / name_of(member)).string()),
      absl::StrCat("--listen-client-urls=", url_of(one.clients)),
      absl::StrCat("--advertise-client-urls=", url_of(one.clients)),
      absl::StrCat("--listen-peer-urls=", url_of(one.peers)),
      absl::StrCat("--initial-advertise-peer-urls=", url_of(one.peers)),
      absl::StrCat("--initial-cluster=", absl::StrJoin(all, ","))});
}

std::vector<HostPort> RealEtcd::addresses() const {
  std::vector<HostPort> addresses;
  for (const Member& member : members_) addresses.push_back(member.clients);
  return addresses;
}

std::unique_ptr<EtcdClient> RealEtcd::NewClient() const {
  return std::make_unique<EtcdClient>(addresses(), grpc::InsecureChannelCredentials());
}

void RealEtcd::Freeze(size_t member) const { members_[member].process->Signal(SIGSTOP); }
void RealEtcd::Thaw(size_t member) const { members_[member].process->Signal(SIGCONT); }
void RealEtcd::Kill(size_t member) { members_[member].process.reset(); }

bool RealEtcd::Answers(size_t member) const {
  EtcdClient client({address(member)}, grpc::InsecureChannelCredentials());
  etcdserverpb::RangeRequest request;
  request.set_key("/");
  return client.Range(request, absl::Seconds(1)).ok();
}

}  // namespace penstock
