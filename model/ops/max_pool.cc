// The largest value of each window of an image [height, width, channels], by channel.
#include "base/status.h"
#include "model/ops/list.h"
#include "model/ops/pool.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace max_pool {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "kernel",
     .kind = AttributeKind::kIntegers,
     .help = "the windows' height and width",
     .sizes = 2},
    kPoolStride,
    kPoolPadding,
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  PENSTOCK_ASSIGN_OR_RETURN(const Window window, PoolWindow(a));
  return Pooled(a, window);
}

}  // namespace
}  // namespace max_pool

constinit const Op kMaxPool = {
    .name = "max_pool",
    .described_as = "max_pool",
    .help = "the largest value of each window",
    .attributes = max_pool::kAttributes,
    .infer = max_pool::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
