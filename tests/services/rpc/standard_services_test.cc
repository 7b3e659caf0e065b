// The services that every RpcServer has: health, and reflection where it is asked for.
#include <grpcpp/generic/generic_stub.h>

#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/services/rpc/server_fixture.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The two standard services speak plain protobuf; a few bytes of it suffice here.
absl::StatusOr<std::string> CallRaw(const std::string& address, const std::string& method,
                                    const std::string& request) {
  grpc::GenericStub stub(MakeControlChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = false;
  const grpc::Slice slice(request);
  grpc::ByteBuffer response;
  grpc::Status status;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  if (ok) {
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    queue.Next(&tag, &ok);
    call->Read(&response, nullptr);
    queue.Next(&tag, &ok);
  }
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  if (!status.ok()) return FromGrpcStatus(status, address);
  grpc::Slice bytes;
  if (!response.DumpToSingleSlice(&bytes).ok()) return absl::DataLossError("no answer");
  return std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
}

TEST_F(ServerTest, Health_FollowsSetServing) {
  StartServer();
  const std::string method = "/grpc.health.v1.Health/Check";
  EXPECT_THAT(CallRaw(peer_, method, ""), IsOkAndHolds(std::string("\x08\x02")));  // NOT_SERVING
  server_->SetServing(true);
  EXPECT_THAT(CallRaw(peer_, method, ""), IsOkAndHolds(std::string("\x08\x01")));  // SERVING
}

TEST_F(ServerTest, Health_Watched_TellsEveryChange) {
  StartServer();
  const auto health = grpc::health::v1::Health::NewStub(
      MakeControlChannel(peer_, grpc::InsecureChannelCredentials()));
  using Response = grpc::health::v1::HealthCheckResponse;
  std::vector<Response::ServingStatus> seen;
  EXPECT_THAT(
      ReadStream(peer_, *health, &grpc::health::v1::Health::Stub::Watch, {}, kTimeout, canceller_,
                 [&](const Response& response) {
                   seen.push_back(response.status());
                   server_->SetServing(seen.size() % 2 == 1);
                   return seen.size() < 3;
                 }),
      StatusIs(absl::StatusCode::kCancelled, _));
  EXPECT_THAT(seen, ::testing::ElementsAre(Response::NOT_SERVING, Response::SERVING,
                                           Response::NOT_SERVING));
}

TEST_F(ServerTest, Health_OfAnUnknownService_IsNotFound) {
  StartServer();
  EXPECT_THAT(CallRaw(peer_, "/grpc.health.v1.Health/Check", "\x0a\x01x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("x")));
}

TEST_F(ServerTest, Reflection_OnlyWithTheOption_ListsTheServices) {
  const std::string method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  const std::string list_services("\x3a\x00", 2);
  StartServer();
  EXPECT_THAT(CallRaw(peer_, method, list_services), StatusIs(absl::StatusCode::kUnimplemented, _));
  server_->Shutdown();
  StartServer({.reflection = true});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string answer, CallRaw(peer_, method, list_services));
  EXPECT_THAT(answer,
              AllOf(HasSubstr("penstock.v1.JobService"), HasSubstr("grpc.health.v1.Health")));
}

}  // namespace
}  // namespace penstock
