// PassGraphs as CUDA graphs, captured from the compute stream.
//
// While a pass is captured its kernels are written down and not run; what would not be is illegal, and makes
// the capture fail: memory taken from the device, waits of the host. A pass has none of it: blocks are taken
// before, libraries work in the context's workspaces. If a capture fails all the same, nothing more is
// captured, passes are queued call by call, and stats() say why.
//
// Thread safety: the thread that owns the back-end. Captures are of this thread alone
// (cudaStreamCaptureModeThreadLocal): what others ask of the device meanwhile is not their affair.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/cuda/context.h"
#include "compute/pass_graph_table.h"
#include "compute/pass_graphs.h"

namespace penstock::cuda {

class CudaPassGraphs final : public PassGraphs {
 public:
  // REQUIRES: `context` outlives them.
  explicit CudaPassGraphs(CudaContext& context) : cuda_(context) {}

  void SetSample(int64_t first_sample) override;
  absl::Status Run(const Key& key, absl::FunctionRef<absl::Status()> queue) override;
  Stats stats() const override;

 private:
  // A graph that still runs is freed when it has ended: documentation of cudaGraphExecDestroy.
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;

  // Captures the work that `queue` asks for as a graph; none of it runs. Errors: why not.
  absl::StatusOr<Graph> Capture(absl::FunctionRef<absl::Status()> queue);

  CudaContext& cuda_;
  PassGraphTable<Graph> table_;
  std::array<const void*, 2> scratch_ = {};  // that the graphs refer to
  int64_t passes_ = 0, replayed_ = 0, recorded_ = 0;
  std::string given_up_;
};

}  // namespace penstock::cuda
