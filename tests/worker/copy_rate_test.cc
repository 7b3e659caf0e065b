#include "worker/copy_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// Each copy takes the time that the test says, and the first of each direction a hundred times that.
class TimedStore : public OffloadStore {
 public:
  TimedStore(int64_t out_ns, int64_t in_ns) : out_ns_(out_ns), in_ns_(in_ns) {}

  absl::StatusOr<int64_t> StartOut(absl::Span<const Buffer> blocks) override {
    for (const Buffer& block : blocks) blocks_.push_back(block);
    return 7;
  }
  absl::StatusOr<CopySpan> FinishOut(int64_t) override { return Span(out_ns_, outs_++); }
  absl::Status StartIn(int64_t) override { return absl::OkStatus(); }
  absl::StatusOr<CopySpan> FinishIn(int64_t, std::vector<Buffer>& blocks) override {
    blocks = std::exchange(blocks_, {});
    return Span(in_ns_, ins_++);
  }

 private:
  static CopySpan Span(int64_t ns, int before) {
    return {.start_ns = 1'000, .end_ns = 1'000 + (before == 0 ? 100 * ns : ns)};
  }

  const int64_t out_ns_;
  const int64_t in_ns_;
  int outs_ = 0;
  int ins_ = 0;
  std::vector<Buffer> blocks_;
};

TEST(CopyRate, IsThatOfTheSlowerDirectionWithoutTheFirstCopies) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Backend> backend, MakeCpuBackend(1));
  for (const auto& [out_ns, in_ns] : {std::pair<int64_t, int64_t>{2'000'000, 16'777'216},
                                      std::pair<int64_t, int64_t>{16'777'216, 3'000'000}}) {
    TimedStore store(out_ns, in_ns);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const double rate, MeasureCopyRate(*backend, store));
    EXPECT_DOUBLE_EQ(rate, 1e9);  // 16 MiB in 2^24 ns
  }
  EXPECT_EQ(backend->pool().stats().bytes_in_use, 0);
}

TEST(CopyRate, CopiesWithoutTimes_HaveNone) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Backend> backend, MakeCpuBackend(1));
  TimedStore store(0, 0);
  EXPECT_THAT(MeasureCopyRate(*backend, store),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no times")));
}

}  // namespace
}  // namespace penstock
