// RowOrder: the order in which gradients are added to the rows of a table: by id, rows of one id ascending, so that no sum
// depends on timing. A sort finds it anew in each pass, in scratch memory.
//
// Thread safety: none; the thread that owns the back-end.
#pragma once

#include "absl/status/statusor.h"
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/context.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/id_windows.h"
#include "compute/cuda/kernels/kernels.h"

namespace penstock::cuda {

class RowOrder {
 public:
  // ids are below `vocabulary`; the table has `width` columns. The memory is the op's whole scratch memory, for the caller to
  // reserve.
  RowOrder(int64_t rows, int64_t vocabulary, int64_t width)
      : rows_(rows),
        vocabulary_(vocabulary),
        workspace_bytes_(SortRowsWorkspaceBytes(rows)),
        order_(scratch_.Add<int32_t>(2 * rows)),
        workspace_(scratch_.Add<char>(workspace_bytes_)),
        sums_(scratch_.Add<float>(IdWindowSums(rows, width))) {}

  int64_t scratch_bytes() const { return scratch_.size_bytes(); }

  // As SortRows gives it. Good until scratch memory is used for something else. Errors: those of the device.
  absl::StatusOr<const int32_t*> Sort(CudaContext& context, const int32_t* ids) const {
    void* const scratch = context.layer_scratch().data();
    int32_t* const order = order_.in(scratch);
    PENSTOCK_RETURN_IF_ERROR(ToStatus(SortRows(context.stream(), rows_, vocabulary_, ids, order,
                                               workspace_.in(scratch), workspace_bytes_),
                                      "sorting ids"));
    return order;
  }

  // Memory for the sums of windows (kernels/id_windows.h).
  float* sums(CudaContext& context) const { return sums_.in(context.layer_scratch().data()); }

 private:
  int64_t rows_, vocabulary_;
  int64_t workspace_bytes_;
  BlockLayout scratch_;
  Place<int32_t> order_;
  Place<char> workspace_;
  Place<float> sums_;
};

}  // namespace penstock::cuda
