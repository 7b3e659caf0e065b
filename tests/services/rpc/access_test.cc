// The table of who may call what, against the descriptions of the services.
#include "services/rpc/access.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.pb.h"
#include "penstock/v1/checkpoint_files.pb.h"
#include "penstock/v1/cluster.pb.h"
#include "penstock/v1/data.pb.h"
#include "services/transport/frame.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

std::set<std::string> MethodsOf(const google::protobuf::FileDescriptor& file) {
  std::set<std::string> methods;
  for (int s = 0; s < file.service_count(); ++s) {
    for (int m = 0; m < file.service(s)->method_count(); ++m) {
      methods.insert(
          absl::StrCat("/", file.service(s)->full_name(), "/", file.service(s)->method(m)->name()));
    }
  }
  return methods;
}

TEST(AccessTable, HasEveryMethodThereIsAndNoOther) {
  std::set<std::string> expected = MethodsOf(*v1::GetJobRequest::descriptor()->file());
  expected.merge(MethodsOf(*v1::FindDataRequest::descriptor()->file()));
  expected.merge(MethodsOf(*v1::WritePartRequest::descriptor()->file()));
  expected.merge(MethodsOf(*grpc::health::v1::HealthCheckRequest::descriptor()->file()));
  expected.insert(kTensorStreamMethod);  // bytes, so it has no description
  expected.insert("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  std::set<std::string> found;
  for (const AccessRule& rule : AccessTable()) {
    EXPECT_TRUE(found.emplace(rule.method).second) << rule.method << " is listed twice";
    EXPECT_FALSE(rule.callers.empty()) << rule.method;
  }
  EXPECT_EQ(found, expected);
}

TEST(CheckAccess, EveryMethodAndRole_IsAsTheServicesAreMeant) {
  for (const AccessRule& rule : AccessTable()) {
    for (const Role role : AllRoles()) {
      const bool everybody = absl::StartsWith(rule.method, "/grpc.health");
      const bool allowed =
          everybody || (absl::StrContains(rule.method, "JobService") && role == Role::kClient) ||
          (absl::StrContains(rule.method, "DataService") &&
           role == (absl::StrContains(rule.method, "ReadData") ? Role::kWorker : Role::kClient)) ||
          (absl::StrContains(rule.method, "CheckpointFiles") && role == Role::kWorker) ||
          (absl::StrContains(rule.method, "Reflection") && role == Role::kClient) ||
          (absl::StrContains(rule.method, "WorkerRegistry") && role == Role::kWorker) ||
          (absl::StrContains(rule.method, "TensorStream") && role == Role::kWorker) ||
          (absl::StrContains(rule.method, "SnapshotPeers") && role == Role::kWorker) ||
          (absl::StrContains(rule.method, "WorkerControl") && role == Role::kCoordinator);
      EXPECT_EQ(CheckAccess(rule.method, {"penstock", role, ""}).ok(), allowed)
          << rule.method << " by " << RoleName(role);
    }
  }
}

TEST(CheckAccess, MethodWithoutRule_IsForNobody) {
  for (const Role role : AllRoles()) {
    for (const char* method : {"", "/", "/penstock.v1.JobService/", "/penstock.v1.JobService/Erase",
                               "/penstock.v1.JobService/submitjob", "SubmitJob"}) {
      EXPECT_THAT(CheckAccess(method, {"penstock", role, ""}),
                  StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("nobody")));
    }
  }
}

TEST(CheckSpeaksFor, WorkerWithAName_SpeaksForItselfAlone) {
  EXPECT_THAT(CheckSpeaksFor({"penstock", Role::kWorker, "w1"}, "w1"), IsOk());
  EXPECT_THAT(CheckSpeaksFor({"penstock", Role::kWorker, ""}, "w1"), IsOk());
  EXPECT_THAT(CheckSpeaksFor({"penstock", Role::kWorker, "w2"}, "w1"),
              StatusIs(absl::StatusCode::kPermissionDenied, _));
  EXPECT_THAT(CheckSpeaksFor({"penstock", Role::kClient, ""}, "w1"),
              StatusIs(absl::StatusCode::kPermissionDenied, _));
}

}  // namespace
}  // namespace penstock
