// Groups of GPUs, as far as one GPU shows them. Where there is none, or no NCCL, the tests say so and are
// skipped by name.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "compute/backend.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

absl::Time Later() { return absl::Now() + absl::Seconds(60); }

class CudaGroup : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(0);
    if (!backend.ok()) GTEST_SKIP() << backend.status();
    backend_ = *std::move(backend);
    ASSERT_NE(backend_->groups(), nullptr);
    absl::StatusOr<DeviceGroupId> id = backend_->groups()->MakeId();
    if (absl::IsUnavailable(id.status())) GTEST_SKIP() << id.status();
    ASSERT_THAT(id, IsOk());
    id_ = *id;
  }

  std::unique_ptr<Backend> backend_;
  DeviceGroupId id_ = {};
};

TEST_F(CudaGroup, OneMember_SumIsItsOwnArrayInTheOrderOfTheCalls) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<DeviceGroup> group,
                                backend_->groups()->Join(id_, 0, 1, Later()));
  constexpr int64_t kCount = 100'003;
  const Tensor tensor = backend_->pool().AcquireTensor(DType::kF32, {kCount});
  ASSERT_TRUE(tensor);
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), 0.5f);
  backend_->CopyToDevice(tensor.data<void>(), values.data(), tensor.size_bytes());
  ASSERT_THAT(group->AllReduceSum(tensor.data<float>(), kCount), IsOk());
  backend_->AddInto(tensor.data<float>(), tensor.data<float>(), kCount);
  std::vector<float> sums(kCount);
  backend_->CopyToHost(sums.data(), tensor.data<void>(), tensor.size_bytes());
  ASSERT_THAT(backend_->Synchronize(), IsOk());
  for (float& value : values) value *= 2.0f;
  EXPECT_EQ(sums, values);
}

TEST_F(CudaGroup, MemberThatIsNone_IsRefused) {
  for (const auto& [rank, size] : {std::pair(-1, 1), std::pair(1, 1), std::pair(0, 0)}) {
    EXPECT_THAT(backend_->groups()->Join(id_, rank, size, Later()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a group of")));
  }
}

TEST_F(CudaGroup, NobodyElseComes_EndsAtTheDeadline) {
  EXPECT_THAT(backend_->groups()->Join(id_, 0, 2, absl::Now() + absl::Seconds(2)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("did not come in time")));
}

}  // namespace
}  // namespace penstock
