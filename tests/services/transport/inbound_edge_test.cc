#include "services/transport/inbound_edge.h"

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class NoMemory : public MemorySource {
 public:
  void* Allocate(int64_t) override { return nullptr; }
  void Free(void*, int64_t) override {}
};

TEST(InboundEdge, Acquire_WhenThereIsNoMemory_IsAnErrorAndNoTensor) {
  NoMemory none;
  BufferPool pool(none);
  InboundEdge edge({.capacity = 1, .tensor_bytes_max = 1 << 20}, pool, /*share=*/nullptr);
  EXPECT_THAT(edge.Acquire(DType::kF32, {4, 100}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1600 bytes")));
}

TEST(InboundEdge, Acquire_AfterTheEnd_TakesNoMemory) {
  BufferPool pool(HostMemory());
  InboundEdge edge({.capacity = 1, .tensor_bytes_max = 1 << 20}, pool, /*share=*/nullptr);
  EXPECT_THAT(edge.Acquire(DType::kF32, {4}), IsOk());
  edge.End(absl::OkStatus());
  EXPECT_THAT(edge.Acquire(DType::kF32, {4}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("over")));
}

}  // namespace
}  // namespace penstock
