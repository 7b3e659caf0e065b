// Plan: a graph (dnn_graph.h) with the engine of cuDNN that computes it.
//
// Thread safety: none; the thread that owns the back-end.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/backend.h"
#include "compute/block_layout.h"
#include "compute/cuda/dnn_descriptor.h"
#include "compute/cuda/dnn_graph.h"

namespace penstock::cuda {

// For what a plan is made: a GPU that is present, or one that is only described, for which plans
// can be made but not run (so that a machine without a GPU can tell whether cuDNN has an engine).
// One of the two is set.
struct PlanTarget {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t properties = nullptr;  // a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR
  Repeatability repeatability = Repeatability::kBitwise;
};

class Plan {
 public:
  // Takes the first of the engines that cuDNN proposes which accepts the GPU, for kBitwise without those
  // that cuDNN marks as adding in an order that timing decides, and for float convolutions without those that are not
  // in true f32. May compile kernels.
  // Errors: Unimplemented when there is none; those of cuDNN.
  static absl::StatusOr<Plan> Create(const PlanTarget& target, Graph graph);

  // Memory that Run may write; see PlanWorkspace.
  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Queues the computation on the stream of `handle`. `addresses`: of the tensors in memory, in the
  // order of Graph::Memory. Errors: those of cuDNN.
  absl::Status Run(cudnnHandle_t handle, absl::Span<void* const> addresses, void* workspace) const;

 private:
  Plan() = default;
  absl::Status Choose(const PlanTarget& target);

  Graph graph_;
  Descriptor operation_graph_;
  Descriptor plan_;
  int64_t workspace_bytes_ = 0;
  // Ids of the tensors in memory, then of the constants, which cuDNN reads in each run. The
  // addresses are kept only so that a run need not allocate them.
  std::vector<int64_t> ids_;
  mutable std::vector<void*> addresses_;
};

// A plan's memory inside scratch memory, whose arrays are not aligned as cuDNN wants it.
class PlanWorkspace {
 public:
  static constexpr int64_t kAlignment = 256;

  PlanWorkspace() = default;
  PlanWorkspace(int64_t size_bytes, BlockLayout& scratch)
      : place_(scratch.Add<char>(size_bytes + kAlignment)) {}
  void* in(void* scratch) const {
    const auto at = reinterpret_cast<uintptr_t>(place_.in(scratch));
    return reinterpret_cast<void*>((at + kAlignment - 1) / kAlignment * kAlignment);
  }

 private:
  Place<char> place_;
};

}  // namespace penstock::cuda
