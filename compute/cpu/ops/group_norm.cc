// Normalisation of each sample's groups of channels.
#include "base/status.h"
#include "compute/cpu/channel_norm.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {

MadeKernels MakeGroupNorm(CpuContext& context, const KernelSpec& spec) {
  const ChannelNorm::Shape shape = {.sets = spec.samples,
                                    .rows = spec.rows() / spec.samples,
                                    .width = spec.width(),
                                    .group = spec.width() / spec.attributes().integer("groups"),
                                    .epsilon = spec.attributes().number("epsilon")};
  auto op = std::make_unique<ChannelNorm>(context, shape);
  PENSTOCK_RETURN_IF_ERROR(op->ReserveScratch());
  return op;
}

}  // namespace penstock::cpu
