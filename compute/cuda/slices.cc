#include "compute/cuda/slices.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"
#include "compute/cuda/error.h"

namespace penstock::cuda {
namespace {

absl::StatusOr<Buffer> Acquire(CudaContext& context, int64_t size_bytes) {
  Buffer buffer = context.pool().Acquire(size_bytes);
  if (!buffer) return absl::ResourceExhaustedError("no memory for a table of slices");
  return buffer;
}

template <typename T>
absl::StatusOr<Buffer> Upload(CudaContext& context, const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  PENSTOCK_ASSIGN_OR_RETURN(Buffer buffer, Acquire(context, bytes));
  PENSTOCK_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(buffer.data(), values.data(), bytes,
                                                    cudaMemcpyHostToDevice, context.stream()),
                                    "uploading a table of slices"));
  return buffer;
}

class Norms : public SliceNorms {
 public:
  static absl::StatusOr<std::unique_ptr<SliceNorms>> Create(
      CudaContext& context, absl::Span<const ParameterSlice> slices) {
    auto norms = std::make_unique<Norms>(context);
    PENSTOCK_ASSIGN_OR_RETURN(norms->table_, SliceTable::Create(context, slices));
    PENSTOCK_ASSIGN_OR_RETURN(norms->partial_sums_,
                              Acquire(context, norms->table_.blocks() * kDoubleBytes));
    PENSTOCK_ASSIGN_OR_RETURN(norms->norms_,
                              Acquire(context, norms->table_.count() * kDoubleBytes));
    return norms;
  }
  explicit Norms(CudaContext& context) : cuda_(context) {}

  absl::Status Measure(const float* values, absl::Span<double> squared_norms) override {
    PENSTOCK_CHECK(static_cast<int64_t>(squared_norms.size()) == table_.count());
    auto* norms = static_cast<double*>(norms_.data());
    SquaredNorms(cuda_.stream(), table_.count(), table_.blocks(), table_.slices(),
                 table_.block_table(), values, static_cast<double*>(partial_sums_.data()), norms);
    PENSTOCK_RETURN_IF_ERROR(cuda_.Check("norms of gradients"));
    PENSTOCK_RETURN_IF_ERROR(
        ToStatus(cudaMemcpyAsync(squared_norms.data(), norms, table_.count() * kDoubleBytes,
                                 cudaMemcpyDeviceToHost, cuda_.stream()),
                 "copying norms"));
    return cuda_.WaitForStream("norms of gradients");
  }

 private:
  static constexpr int64_t kDoubleBytes = sizeof(double);

  CudaContext& cuda_;
  SliceTable table_;
  Buffer partial_sums_, norms_;
};

// An optimizer of compute/elementwise/: the slices, and their gradients' scales on the device, group after group. A
// group of slices is a launch, since all of them take one Step.
template <typename Config>
class Elementwise : public Optimizer {
 public:
  Elementwise(CudaContext& context, const Config& config) : cuda_(context), config_(config) {}

  absl::Status Prepare(absl::Span<const ParameterSlice> slices) {
    for (SliceGroup& group : GroupSlices(slices)) {
      std::vector<ParameterSlice> of_group;
      for (const size_t s : group.indices) of_group.push_back(slices[s]);
      PENSTOCK_ASSIGN_OR_RETURN(SliceTable table, SliceTable::Create(cuda_, of_group));
      auto updates = UpdatesOf(group.Of(config_));
      groups_.push_back({std::move(group), std::move(updates), std::move(table)});
    }
    host_scales_.resize(slices.size());
    PENSTOCK_ASSIGN_OR_RETURN(scales_,
                              Acquire(cuda_, static_cast<int64_t>(slices.size() * sizeof(float))));
    return absl::OkStatus();
  }

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    using Step = typename Config::Step;
    PENSTOCK_RETURN_IF_ERROR(UploadScales(a.gradient_scales));
    float* state[Step::kStates] = {};
    std::copy(a.state.begin(), a.state.end(), state);
    const ElementwiseLaunch<Step>& launch = kElementwise;
    auto* scales = static_cast<const float*>(scales_.data());
    for (Group& group : groups_) {
      launch.run(cuda_.stream(), group.table.blocks(), group.table.slices(),
                 group.table.block_table(),
                 group.updates.At(a.learning_rate * group.slices.rate_scale, a.update),
                 StepArraysOf(a, scales), state);
      scales += group.table.count();
    }
    return cuda_.Check(config_.kind());
  }

 private:
  struct Group {
    SliceGroup slices;
    decltype(UpdatesOf(Config())) updates;
    SliceTable table;
  };

  absl::Status UploadScales(absl::Span<const float> by_slice) {
    PENSTOCK_CHECK(by_slice.size() == host_scales_.size());
    size_t next = 0;
    for (const Group& group : groups_) {
      for (const size_t s : group.slices.indices) host_scales_[next++] = by_slice[s];
    }
    // The host's copy is free when this returns: it is not page-locked, so the driver copies it first.
    return ToStatus(cudaMemcpyAsync(scales_.data(), host_scales_.data(), next * sizeof(float),
                                    cudaMemcpyHostToDevice, cuda_.stream()),
                    "uploading the gradients' scales");
  }

  CudaContext& cuda_;
  const Config config_;
  std::vector<Group> groups_;
  std::vector<float> host_scales_;  // group after group, as those on the device
  Buffer scales_;
};

}  // namespace

absl::StatusOr<SliceTable> SliceTable::Create(CudaContext& context,
                                              absl::Span<const ParameterSlice> slices) {
  std::vector<Slice> on_device;
  std::vector<SliceBlock> blocks;
  for (size_t s = 0; s < slices.size(); ++s) {
    on_device.push_back({slices[s].offset, slices[s].count, slices[s].has_decay() ? 1 : 0,
                         static_cast<int32_t>(blocks.size()), slices[s].identity});
    for (int64_t first = 0; first < slices[s].count; first += kSliceBlock) {
      blocks.push_back({static_cast<int32_t>(s), static_cast<int32_t>(first / kSliceBlock)});
    }
  }
  SliceTable table;
  table.count_ = static_cast<int64_t>(on_device.size());
  table.blocks_ = static_cast<int64_t>(blocks.size());
  PENSTOCK_ASSIGN_OR_RETURN(table.slice_table_, Upload(context, on_device));
  PENSTOCK_ASSIGN_OR_RETURN(table.block_table_, Upload(context, blocks));
  return table;
}

StepArrays StepArraysOf(const StepArguments& a, const float* scales) {
  StepArrays arrays = {.weights = a.weights,
                       .next_weights = a.next_weights,
                       .next_bf16 = a.next_bf16,
                       .gradients = a.gradients,
                       .scales = scales};
  arrays.rounds_at_random = a.rounding_key.has_value();
  if (a.rounding_key) arrays.rounding = {*a.rounding_key, 0, static_cast<uint32_t>(a.update)};
  return arrays;
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(CudaContext& context,
                                                         const OptimizerConfig& config,
                                                         absl::Span<const ParameterSlice> slices) {
  return std::visit(
      [&](const auto& each) -> absl::StatusOr<std::unique_ptr<Optimizer>> {
        using Config = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<Config, MuonConfig>) {
          return MakeMuon(context, each, slices);
        } else {
          auto optimizer = std::make_unique<Elementwise<Config>>(context, each);
          PENSTOCK_RETURN_IF_ERROR(optimizer->Prepare(slices));
          return optimizer;
        }
      },
      config);
}

absl::StatusOr<std::unique_ptr<SliceNorms>> MakeSliceNorms(
    CudaContext& context, absl::Span<const ParameterSlice> slices) {
  return Norms::Create(context, slices);
}

}  // namespace penstock::cuda
