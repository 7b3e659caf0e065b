// Plans cuDNN's attention for an H200 that is only described: no GPU needed. What a plan computes is the conformance
// suite's to say, on a GPU.
#include <cudnn.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "compute/cuda/sdpa.h"
#include "tests/support/status_matchers.h"

namespace penstock::cuda {
namespace {

using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;

// As cuDNN writes it; its own version of the driver's and of the device's properties.
constexpr absl::string_view kH200 =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,)"
    R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,)"
    R"("pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":150109880320,)"
    R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,"cudaDeviceId":0,)"
    R"("deviceVer":900,"driverVer":13000,"deviceName":"NVIDIA H200"})";
constexpr size_t kOldestWithDescribedGpus = 90800;
constexpr size_t kOldestWithPartialTiles = 91600;
constexpr int64_t kMiB = int64_t{1} << 20;

// Queries, keys and values side by side.
AttentionShape SelfAttention(int64_t batch, int64_t tokens, int64_t heads, int64_t size,
                             int64_t key_value_heads, int64_t window = 0) {
  const int64_t stride = (heads + 2 * key_value_heads) * size;
  return {.batch = batch,
          .queries = tokens,
          .keys = tokens,
          .heads = heads,
          .size = size,
          .key_value_heads = key_value_heads,
          .query_stride = stride,
          .key_stride = stride,
          .causal = true,
          .window = window};
}

const AttentionShape kGpt2 = SelfAttention(16, 1024, 12, 64, 12);

class AttentionPlanningTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cudnnGetVersion() < kOldestWithDescribedGpus) {
      GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " plans for no GPU that is only described";
    }
    // Loaded before cuDNN looks for a driver, it is the driver.
    ASSERT_NE(dlopen(PENSTOCK_PLAYED_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    auto gpu = DescriptorWriter(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "describing a GPU")
                   .SetArray(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                             static_cast<int64_t>(kH200.size()), kH200.data())
                   .Finish();
    ASSERT_THAT(gpu, IsOk());
    gpu_ = *std::move(gpu);
  }

  absl::StatusOr<std::unique_ptr<Sdpa>> PlanFor(const AttentionShape& shape,
                                                Repeatability repeatability) const {
    return Sdpa::CreateFor({.properties = gpu_.get(), .repeatability = repeatability}, shape);
  }
  int64_t WorkspaceOf(const AttentionShape& shape, Repeatability repeatability) const {
    const auto plan = PlanFor(shape, repeatability);
    EXPECT_THAT(plan, IsOk());
    return plan.ok() ? (*plan)->workspace_bytes() : 0;
  }

  Descriptor gpu_;
};

TEST_F(AttentionPlanningTest,
       Gpt2_NotRepeatable_SumsTheGradientOfQueriesInsteadOfStoringThatOfScores) {
  const int64_t scores = 2 * kGpt2.batch * kGpt2.heads * kGpt2.queries * kGpt2.keys;
  const int64_t sums = 4 * kGpt2.batch * kGpt2.heads * kGpt2.queries * kGpt2.size;
  const int64_t bitwise = WorkspaceOf(kGpt2, Repeatability::kBitwise);
  const int64_t fast = WorkspaceOf(kGpt2, Repeatability::kFast);
  EXPECT_THAT(bitwise, Gt(scores));
  EXPECT_THAT(bitwise, Lt(scores + 2 * kMiB));
  EXPECT_THAT(fast, Gt(sums));
  EXPECT_THAT(fast, Lt(sums + 2 * kMiB));
}

TEST_F(AttentionPlanningTest, NotRepeatable_FewKeys_StoresTheGradientOfScores) {
  const AttentionShape shape = SelfAttention(4, 128, 2, 64, 2);
  EXPECT_EQ(WorkspaceOf(shape, Repeatability::kFast), WorkspaceOf(shape, Repeatability::kBitwise));
}

TEST_F(AttentionPlanningTest, EveryKindOfShape_HasAnEngine) {
  AttentionShape cross = SelfAttention(4, 256, 8, 64, 8);
  cross.keys = 384;
  cross.query_stride = cross.key_stride = cross.width();
  cross.causal = false;
  AttentionShape acausal = SelfAttention(4, 512, 12, 64, 12);
  acausal.causal = false;
  std::vector<AttentionShape> shapes = {
      SelfAttention(2, 256, 2, 32, 2),       // as the suite's
      SelfAttention(2, 1024, 8, 128, 2),     // shared keys and values
      SelfAttention(2, 1024, 8, 64, 2, 64),  // with a window
      SelfAttention(2, 512, 4, 256, 4),     cross, acausal};
  if (cudnnGetVersion() >= kOldestWithPartialTiles)
    shapes.push_back(SelfAttention(2, 1000, 4, 64, 4));
  for (const AttentionShape& shape : shapes) {
    for (const Repeatability repeatability : {Repeatability::kBitwise, Repeatability::kFast}) {
      EXPECT_THAT(PlanFor(shape, repeatability), IsOk());
    }
  }
}

TEST_F(AttentionPlanningTest, ShapeWithoutEngine_SaysWhy) {
  EXPECT_THAT(PlanFor(SelfAttention(2, 128, 2, 12, 2), Repeatability::kFast),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("no multiple of 8")));
  EXPECT_THAT(PlanFor(SelfAttention(2, 1, 2, 64, 2), Repeatability::kFast),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("fewer than 2")));
}

}  // namespace
}  // namespace penstock::cuda
