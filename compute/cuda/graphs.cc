#include "compute/cuda/graphs.h"

#include <utility>

#include "base/status.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/kernels.h"

namespace penstock::cuda {

void CudaPassGraphs::SetSample(int64_t first_sample) {
  if (!given_up_.empty()) return;
  Store(cuda_.stream(), first_sample, cuda_.sample_memory());
  cuda_.Note(cuda_.Check("writing the number of a sample"));
}

absl::Status CudaPassGraphs::Run(const Key& key, absl::FunctionRef<absl::Status()> queue) {
  ++passes_;
  if (!given_up_.empty()) return queue();
  // They move when a layer is made that wants more.
  if (const std::array<const void*, 2> scratch = {cuda_.layer_scratch().data(),
                                                  cuda_.fp8_scratch().data()};
      scratch != scratch_) {
    table_.Clear();
    scratch_ = scratch;
  }
  bool seen_before = false;
  auto& entry = table_.Find(key, seen_before);
  if (!seen_before) return queue();
  if (entry.recording == nullptr) {
    // An error of what ran before is none of the capture's.
    PENSTOCK_RETURN_IF_ERROR(cuda_.Check("capturing a CUDA graph"));
    absl::StatusOr<Graph> graph = Capture(queue);
    if (!graph.ok()) {
      (void)cudaGetLastError();  // told by stats()
      given_up_ = std::string(graph.status().message());
      table_.Clear();
      return queue();
    }
    entry.recording = *std::move(graph);
    ++recorded_;
  } else {
    ++replayed_;
  }
  return ToStatus(cudaGraphLaunch(entry.recording.get(), cuda_.stream()), "replaying a pass");
}

absl::StatusOr<CudaPassGraphs::Graph> CudaPassGraphs::Capture(
    absl::FunctionRef<absl::Status()> queue) {
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cudaStreamBeginCapture(cuda_.stream(), cudaStreamCaptureModeThreadLocal),
               "beginning to capture a CUDA graph"));
  cuda_.set_reads_sample_memory(true);
  const absl::Status queued = queue();
  cuda_.set_reads_sample_memory(false);
  // In any case, because it is what ends the capture.
  cudaGraph_t written = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(cuda_.stream(), &written);
  cudaGraphExec_t graph = nullptr;
  cudaError_t made = ended;
  if (queued.ok() && ended == cudaSuccess) made = cudaGraphInstantiate(&graph, written, 0);
  if (written != nullptr) (void)cudaGraphDestroy(written);
  PENSTOCK_RETURN_IF_ERROR(Annotate(queued, "capturing a CUDA graph"));
  PENSTOCK_RETURN_IF_ERROR(ToStatus(made, "capturing a CUDA graph"));
  return Graph(graph);
}

PassGraphs::Stats CudaPassGraphs::stats() const {
  return {.passes = passes_,
          .replayed = replayed_,
          .recorded = recorded_,
          .kept = table_.recordings(),
          .given_up = given_up_};
}

}  // namespace penstock::cuda
