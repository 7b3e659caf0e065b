// Muon; see MuonConfig for the formula.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/status.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/optimizers.h"
#include "compute/cpu/product.h"

namespace penstock {
namespace {

// Newton and Schulz's iteration for matrices of one shape. A = X X^T or X^T X, whichever is smaller.
class Orthogonalizer {
 public:
  static absl::StatusOr<Orthogonalizer> Create(CpuContext& context, int64_t rows, int64_t columns) {
    const bool wide = rows <= columns;
    const int64_t side = std::min(rows, columns);
    const auto product = [&](const ProductShape& shape) {
      return MatrixProduct::Create(context, shape, dnnl::memory::data_type::f32);
    };
    Orthogonalizer made;
    made.wide_ = wide;
    made.count_ = rows * columns;
    made.side_count_ = side * side;
    PENSTOCK_ASSIGN_OR_RETURN(made.square_, product({.rows = side,
                                                     .columns = side,
                                                     .inner = std::max(rows, columns),
                                                     .transposed_left = !wide,
                                                     .transposed_right = wide}));
    PENSTOCK_ASSIGN_OR_RETURN(made.fourth_,
                              product({.rows = side, .columns = side, .inner = side}));
    PENSTOCK_ASSIGN_OR_RETURN(made.apply_,
                              product({.rows = rows, .columns = columns, .inner = side}));
    return made;
  }

  // Floats: X, the next X, A and its polynomial.
  int64_t scratch_floats() const { return 2 * (count_ + side_count_); }

  // X is at the start of `scratch`.
  void Run(const CpuContext& cpu, float* scratch) const {
    float* const x = scratch;
    float* const product = x + count_;
    float* const a = product + count_;
    float* const polynomial = a + side_count_;
    for (int i = 0; i < kMuonIterations; ++i) {
      square_.Run(x, x, a);
      fourth_.Run(a, a, polynomial);
      Combine(cpu, side_count_, kMuonB, a, kMuonC, polynomial);
      apply_.Run(wide_ ? polynomial : x, wide_ ? x : polynomial, product);
      Combine(cpu, count_, 1.0f, product, kMuonA, x);
    }
  }

 private:
  // y = a x + b y.
  static void Combine(const CpuContext& cpu, int64_t count, float a, const float* x, float b,
                      float* y) {
    ForFlat(cpu, count, [&](int64_t first, int64_t size) {
      cpu.kernels.linear_combination(size, a, x + first, b, y + first, y + first);
    });
  }

  bool wide_ = true;
  int64_t count_ = 0;
  int64_t side_count_ = 0;
  MatrixProduct square_, fourth_, apply_;
};

class CpuMuon : public Optimizer {
 public:
  CpuMuon(CpuContext& context, const MuonConfig& config, absl::Span<const ParameterSlice> slices)
      : cpu_(context), config_(config), slices_(slices) {}

  absl::Status Prepare(absl::Span<const ParameterSlice> slices) {
    for (const size_t s : slices_.matrices()) {
      const std::pair<int64_t, int64_t> shape = {slices[s].rows, slices[s].columns};
      if (orthogonalizers_.count(shape) == 0) {
        PENSTOCK_ASSIGN_OR_RETURN(orthogonalizers_[shape],
                                  Orthogonalizer::Create(cpu_, shape.first, shape.second));
      }
      const Orthogonalizer& orthogonalizer = orthogonalizers_[shape];
      PENSTOCK_RETURN_IF_ERROR(cpu_.layer_scratch.Reserve(orthogonalizer.scratch_floats() *
                                                          static_cast<int64_t>(sizeof(float))));
      matrices_.push_back({slices[s], s, &orthogonalizer});
    }
    PENSTOCK_ASSIGN_OR_RETURN(others_, MakeCpuOptimizer(cpu_, config_.adamw, slices_.others()));
    return absl::OkStatus();
  }

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    for (const Matrix& matrix : matrices_) StepMatrix(a, matrix);
    return others_->Step(slices_.ArgumentsOfOthers(a));
  }

 private:
  struct Matrix {
    ParameterSlice slice;
    size_t index;  // of the slice
    const Orthogonalizer* orthogonalizer;
  };

  void StepMatrix(const StepArguments& a, const Matrix& matrix) const {
    const ParameterSlice& slice = matrix.slice;
    auto* const x = static_cast<float*>(cpu_.layer_scratch.data());
    ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
      const int64_t at = slice.offset + first;
      cpu_.kernels.nesterov_direction(static_cast<float>(config_.momentum),
                                      a.gradient_scales[matrix.index], count, a.gradients + at,
                                      a.state[0] + at, x + first);
    });
    const auto inverse = static_cast<float>(1.0 / (Norm(x, slice.count) + kMuonNormMin));
    ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
      cpu_.kernels.linear_combination(count, inverse, x + first, 0.0f, x + first, x + first);
    });
    matrix.orthogonalizer->Run(cpu_, x);
    const auto keep = static_cast<float>(MuonKeep(config_, slice, a.learning_rate));
    const auto rate = static_cast<float>(MuonRate(slice, a.learning_rate));
    Bf16* const mirror = a.rounding_key ? nullptr : a.next_bf16;
    ForFlat(cpu_, slice.count, [&](int64_t first, int64_t count) {
      const int64_t at = slice.offset + first;
      cpu_.kernels.linear_combination(count, keep, a.weights + at, -rate, x + first,
                                      a.next_weights + at);
      if (mirror != nullptr) cpu_.kernels.to_bf16(count, a.next_weights + at, mirror + at);
    });
    RoundMirror(cpu_, a, slice);
  }

  // Block after block, so that it does not depend on the number of threads.
  double Norm(const float* values, int64_t count) const {
    double sum = 0.0;
    for (int64_t first = 0; first < count; first += kFlatBlock) {
      sum += cpu_.kernels.squared_norm(std::min(kFlatBlock, count - first), values + first);
    }
    return std::sqrt(sum);
  }

  CpuContext& cpu_;
  const MuonConfig config_;
  std::map<std::pair<int64_t, int64_t>, Orthogonalizer> orthogonalizers_;  // by rows and columns
  MuonSlices slices_;
  std::vector<Matrix> matrices_;
  std::unique_ptr<Optimizer> others_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeCpuMuon(CpuContext& context,
                                                       const MuonConfig& config,
                                                       absl::Span<const ParameterSlice> slices) {
  auto optimizer = std::make_unique<CpuMuon>(context, config, slices);
  PENSTOCK_RETURN_IF_ERROR(optimizer->Prepare(slices));
  return optimizer;
}

}  // namespace penstock
