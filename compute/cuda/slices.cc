#include "compute/cuda/slices.h"

#include <utility>

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

// What the optimizers that know no matrices have in common: the slices, and their gradients' scales
// on the device.
class SliceOptimizer : public Optimizer {
 public:
  explicit SliceOptimizer(CudaContext& context) : cuda_(context) {}

  absl::Status Prepare(absl::Span<const ParameterSlice> slices) {
    PENSTOCK_ASSIGN_OR_RETURN(table_, SliceTable::Create(cuda_, slices));
    PENSTOCK_ASSIGN_OR_RETURN(scales_,
                              Acquire(cuda_, table_.count() * static_cast<int64_t>(sizeof(float))));
    return absl::OkStatus();
  }

 protected:
  // Brings the scales over. The host's copy is free when this returns: it is not page-locked, so the
  // driver copies it first.
  absl::StatusOr<StepArrays> ArraysOf(const StepArguments& a) {
    PENSTOCK_CHECK(static_cast<int64_t>(a.gradient_scales.size()) == table_.count());
    PENSTOCK_RETURN_IF_ERROR(ToStatus(
        cudaMemcpyAsync(scales_.data(), a.gradient_scales.data(), table_.count() * sizeof(float),
                        cudaMemcpyHostToDevice, cuda_.stream()),
        "uploading the gradients' scales"));
    return StepArraysOf(a, static_cast<const float*>(scales_.data()));
  }

  CudaContext& cuda_;
  SliceTable table_;

 private:
  Buffer scales_;
};

class AdamW : public SliceOptimizer {
 public:
  AdamW(CudaContext& context, const AdamWConfig& config)
      : SliceOptimizer(context), config_(config) {}

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    PENSTOCK_ASSIGN_OR_RETURN(const StepArrays arrays, ArraysOf(a));
    AdamWStep(cuda_.stream(), table_.blocks(), table_.slices(), table_.block_table(),
              ConstantsOf(config_, a.learning_rate, a.update), arrays, a.state[0], a.state[1]);
    return cuda_.Check("a step of AdamW");
  }

 private:
  const AdamWConfig config_;
};

class NAdamW : public SliceOptimizer {
 public:
  NAdamW(CudaContext& context, const NAdamWConfig& config)
      : SliceOptimizer(context), config_(config), product_(config) {}

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    PENSTOCK_ASSIGN_OR_RETURN(const StepArrays arrays, ArraysOf(a));
    NAdamWStep(cuda_.stream(), table_.blocks(), table_.slices(), table_.block_table(),
               ConstantsOf(config_, product_, a.learning_rate, a.update), arrays, a.state[0],
               a.state[1]);
    return cuda_.Check("a step of NAdamW");
  }

 private:
  const NAdamWConfig config_;
  MomentumProduct product_;
};

class Sgd : public SliceOptimizer {
 public:
  Sgd(CudaContext& context, const SgdConfig& config) : SliceOptimizer(context), config_(config) {}

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    PENSTOCK_ASSIGN_OR_RETURN(const StepArrays arrays, ArraysOf(a));
    SgdStep(cuda_.stream(), table_.blocks(), table_.slices(), table_.block_table(),
            ConstantsOf(config_, a.learning_rate), arrays, a.state.empty() ? nullptr : a.state[0]);
    return cuda_.Check("a step of SGD");
  }

 private:
  const SgdConfig config_;
};

template <typename Made, typename Config>
absl::StatusOr<std::unique_ptr<Optimizer>> Make(CudaContext& context, const Config& config,
                                                absl::Span<const ParameterSlice> slices) {
  auto optimizer = std::make_unique<Made>(context, config);
  PENSTOCK_RETURN_IF_ERROR(optimizer->Prepare(slices));
  return optimizer;
}

}  // namespace

absl::StatusOr<SliceTable> SliceTable::Create(CudaContext& context,
                                              absl::Span<const ParameterSlice> slices) {
  std::vector<Slice> on_device;
  std::vector<SliceBlock> blocks;
  for (size_t s = 0; s < slices.size(); ++s) {
    on_device.push_back({slices[s].offset, slices[s].count, slices[s].decays ? 1 : 0,
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
  struct Maker {
    CudaContext& context;
    absl::Span<const ParameterSlice> slices;

    using Result = absl::StatusOr<std::unique_ptr<Optimizer>>;
    Result operator()(const SgdConfig& c) const { return Make<Sgd>(context, c, slices); }
    Result operator()(const AdamWConfig& c) const { return Make<AdamW>(context, c, slices); }
    Result operator()(const NAdamWConfig& c) const { return Make<NAdamW>(context, c, slices); }
    Result operator()(const MuonConfig& c) const { return MakeMuon(context, c, slices); }
  };
  return std::visit(Maker{context, slices}, config);
}

absl::StatusOr<std::unique_ptr<SliceNorms>> MakeSliceNorms(
    CudaContext& context, absl::Span<const ParameterSlice> slices) {
  return Norms::Create(context, slices);
}

}  // namespace penstock::cuda
