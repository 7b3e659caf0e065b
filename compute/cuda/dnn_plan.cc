#include "compute/cuda/dnn_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace penstock::cuda {
namespace {

// The engines that cuDNN proposes for the graph, with their settings, best first.
absl::StatusOr<std::vector<Descriptor>> Propose(const PlanTarget& target,
                                                cudnnBackendDescriptor_t graph,
                                                cudnnBackendHeurMode_t mode) {
  constexpr absl::string_view kWhat = "looking for engines";
  DescriptorWriter writer(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, kWhat);
  writer.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target.properties != nullptr) {
    writer.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Descriptor heuristics, writer.Finish());
  PENSTOCK_ASSIGN_OR_RETURN(
      int64_t count, GetAttribute<cudnnBackendDescriptor_t>(
                         heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, 0, nullptr, kWhat));
  std::vector<Descriptor> engines;
  std::vector<cudnnBackendDescriptor_t> to_fill;
  for (int64_t i = 0; i < count; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(Descriptor engine,
                              EmptyDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kWhat));
    to_fill.push_back(engine.get());
    engines.push_back(std::move(engine));
  }
  // Fewer than were promised when cuDNN finds now that some do not work on this GPU.
  PENSTOCK_ASSIGN_OR_RETURN(count, GetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                count, to_fill.data(), kWhat));
  engines.resize(static_cast<size_t>(count));
  return engines;
}

using Notes = std::vector<cudnnBackendNumericalNote_t>;

// What cuDNN says of an engine's arithmetic.
absl::StatusOr<Notes> NotesOf(cudnnBackendDescriptor_t configuration) {
  constexpr absl::string_view kWhat = "asking an engine how it computes";
  PENSTOCK_ASSIGN_OR_RETURN(const Descriptor engine,
                            EmptyDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, kWhat));
  cudnnBackendDescriptor_t to_fill = engine.get();
  PENSTOCK_RETURN_IF_ERROR(
      GetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, 1, &to_fill, kWhat).status());
  Notes notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t count,
                            GetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                         static_cast<int64_t>(notes.size()), notes.data(), kWhat));
  notes.resize(static_cast<size_t>(count));
  return notes;
}

// Unimplemented for an engine with one of the notes.
absl::Status CheckHasNone(cudnnBackendDescriptor_t configuration, const Notes& refused) {
  if (refused.empty()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const Notes notes, NotesOf(configuration));
  for (const cudnnBackendNumericalNote_t note : notes) {
    if (std::count(refused.begin(), refused.end(), note) == 0) continue;
    return absl::UnimplementedError(note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                        ? "the results of this engine do not repeat"
                                        : "this engine does not compute in true f32");
  }
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> MakePlan(const PlanTarget& target,
                                    cudnnBackendDescriptor_t configuration, const Notes& refused) {
  PENSTOCK_RETURN_IF_ERROR(CheckHasNone(configuration, refused));
  DescriptorWriter writer(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "making a plan");
  if (target.handle != nullptr) writer.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  if (target.properties != nullptr) {
    writer.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties);
  }
  return writer.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration).Finish();
}

}  // namespace

absl::StatusOr<Plan> Plan::Create(const PlanTarget& target, Graph graph) {
  PENSTOCK_RETURN_IF_ERROR(graph.status_);
  Plan plan;
  plan.graph_ = std::move(graph);
  DescriptorWriter writer(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "describing the graph");
  writer.SetAll(CUDNN_ATTR_OPERATIONGRAPH_OPS, plan.graph_.operations_);
  if (target.handle != nullptr) writer.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
  PENSTOCK_ASSIGN_OR_RETURN(plan.operation_graph_, writer.Finish());
  PENSTOCK_RETURN_IF_ERROR(plan.Choose(target));
  PENSTOCK_RETURN_IF_ERROR(GetAttribute(plan.plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                        1, &plan.workspace_bytes_,
                                        "asking for the size of the workspace")
                               .status());
  plan.ids_ = plan.graph_.memory_ids_;
  plan.ids_.insert(plan.ids_.end(), plan.graph_.constant_ids_.begin(),
                   plan.graph_.constant_ids_.end());
  plan.addresses_.resize(plan.graph_.memory_ids_.size());
  for (float& constant : plan.graph_.constants_) plan.addresses_.push_back(&constant);
  return plan;
}

absl::Status Plan::Choose(const PlanTarget& target) {
  Notes refused;
  if (target.repeatability == Repeatability::kBitwise) {
    refused.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  }
  if (graph_.needs_true_f32_) {
    refused.insert(refused.end(),
                   {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
                    CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDNN_NUMERICAL_NOTE_FFT,
                    CUDNN_NUMERICAL_NOTE_WINOGRAD});
  }
  absl::Status failure = absl::UnimplementedError("cuDNN has no engine for it on this GPU");
  // An error that is not a refusal says more than the refusals of other engines.
  const auto keep = [&failure](const absl::Status& status) {
    if (absl::IsUnimplemented(failure)) failure = status;
  };
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    const absl::StatusOr<std::vector<Descriptor>> engines =
        Propose(target, operation_graph_.get(), mode);
    if (!engines.ok()) {
      keep(engines.status());
      continue;
    }
    for (const Descriptor& engine : *engines) {
      absl::StatusOr<Descriptor> made = MakePlan(target, engine.get(), refused);
      if (made.ok()) {
        plan_ = *std::move(made);
        return absl::OkStatus();
      }
      keep(made.status());
    }
  }
  return failure;
}

absl::Status Plan::Run(cudnnHandle_t handle, absl::Span<void* const> addresses,
                       void* workspace) const {
  PENSTOCK_CHECK(addresses.size() == graph_.memory_ids_.size());
  std::copy(addresses.begin(), addresses.end(), addresses_.begin());
  // A new descriptor for each run, which cuDNN allocates: it refuses to change a finished one.
  PENSTOCK_ASSIGN_OR_RETURN(
      const Descriptor pack,
      DescriptorWriter(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "giving cuDNN the addresses")
          .SetAll(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids_)
          .SetArray(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                    static_cast<int64_t>(addresses_.size()), addresses_.data())
          .SetArray(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
          .Finish());
  return ToStatus(cudnnBackendExecute(handle, plan_.get(), pack.get()), "running a plan");
}

}  // namespace penstock::cuda
