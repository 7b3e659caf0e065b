#include "services/cli/checkpoint_source.h"

#include <gmock/gmock.h>

#include <string>

#include "services/rpc/server.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kSavedJob[] = "gpt-1-kzvpt";
constexpr char kSavedAs[] = "/var/lib/checkpoints/gpt/step-000000000006";

// A coordinator that knows one job, whose last checkpoint is where it says.
class CheckpointSourceTest : public ::testing::Test {
 protected:
  using Jobs = v1::JobService::AsyncService;

  CheckpointSourceTest() : server_({.listen = {"127.0.0.1", 0}}) {
    server_.Unary(server_.AddService<Jobs>(), &Jobs::RequestGetJob,
                  [](const v1::GetJobRequest& request,
                     const CallInfo&) -> absl::StatusOr<v1::GetJobResponse> {
                    if (request.job_id() != kSavedJob) return absl::NotFoundError("no such job");
                    v1::GetJobResponse response;
                    response.mutable_result()->set_checkpoint(kSavedAs);
                    return response;
                  });
    EXPECT_THAT(server_.Start(), IsOk());
  }

  absl::StatusOr<std::string> Find(const std::string& source) {
    return FindCheckpointPath(
        files_, source, {.address = server_.address().ToString(), .security = {.insecure = true}});
  }

  MemoryFiles files_;
  RpcServer server_;
};

TEST_F(CheckpointSourceTest, PathOrJob_IsFoundWhereItIs) {
  ASSERT_THAT(files_.CreateDirectories(kSavedAs), IsOk());
  EXPECT_THAT(Find(kSavedAs), IsOkAndHolds(kSavedAs));
  EXPECT_THAT(Find(kSavedJob), IsOkAndHolds(kSavedAs));
}

// As where workers send their checkpoints to the coordinator, and the user sits at a third machine.
TEST_F(CheckpointSourceTest, CheckpointOfAnotherMachine_SaysWhereItIsAndWhatToDo) {
  EXPECT_THAT(Find(kSavedJob),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("the last checkpoint of job gpt-1-kzvpt is "
                                       "/var/lib/checkpoints/gpt/step-000000000006, which is not "
                                       "on this machine"),
                             HasSubstr("--checkpoint-root coordinator"), HasSubstr("scp -r"))));
  EXPECT_THAT(Find(kSavedAs),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("there is no checkpoint directory /var/lib/checkpoints/gpt/"
                                       "step-000000000006 on this machine"),
                             HasSubstr("--checkpoint-root coordinator"), HasSubstr("scp -r"))));
  EXPECT_THAT(Find("gpt-2-other"), StatusIs(absl::StatusCode::kNotFound,
                                            HasSubstr("there is no directory gpt-2-other")));
}

}  // namespace
}  // namespace penstock
