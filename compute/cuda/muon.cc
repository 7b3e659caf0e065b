// Muon; see MuonConfig for the formula. All of it is queued, nothing waits for the device.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/product.h"
#include "compute/cuda/slices.h"

namespace penstock::cuda {
namespace {

// Newton and Schulz's iteration for matrices of one shape. A = X X^T or X^T X, whichever is smaller. Between the products X, A and its
// polynomial are float; the products of Bf16 read rounded copies.
class Orthogonalizer {
 public:
  // `bf16`: as of MuonConfig.
  static absl::StatusOr<Orthogonalizer> Create(CudaContext& context, int64_t rows, int64_t columns,
                                               bool bf16) {
    Orthogonalizer made;
    made.wide_ = rows <= columns;
    made.bf16_ = bf16;
    made.count_ = rows * columns;
    const int64_t side = std::min(rows, columns);
    made.side_count_ = side * side;
    const cudaDataType_t operands = bf16 ? CUDA_R_16BF : CUDA_R_32F;
    PENSTOCK_ASSIGN_OR_RETURN(made.square_,
                              MatrixProduct::Create(context, {.rows = side,
                                                              .columns = side,
                                                              .inner = std::max(rows, columns),
                                                              .transposed_left = !made.wide_,
                                                              .transposed_right = made.wide_,
                                                              .operands = operands}));
    PENSTOCK_ASSIGN_OR_RETURN(
        made.fourth_,
        MatrixProduct::Create(
            context, {.rows = side, .columns = side, .inner = side, .operands = operands}));
    PENSTOCK_ASSIGN_OR_RETURN(
        made.apply_,
        MatrixProduct::Create(
            context, {.rows = rows, .columns = columns, .inner = side, .operands = operands}));
    // The norm of X.
    const ParameterSlice whole = {.offset = 0, .count = made.count_};
    PENSTOCK_ASSIGN_OR_RETURN(made.table_, SliceTable::Create(context, {&whole, 1}));
    made.PlaceScratch();
    return made;
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }
  float* x(void* scratch) const { return x_.in(scratch); }

  // Normalizes X and orthogonalizes it in place.
  absl::Status Run(CudaContext& context, void* scratch) const {
    const cudaStream_t stream = context.stream();
    double* const sums = sums_.in(scratch);
    float* const x = x_.in(scratch);
    float* const product = product_.in(scratch);
    float* const a = a_.in(scratch);
    float* const polynomial = polynomial_.in(scratch);
    double* const norm = sums + table_.blocks();
    // What products read of an array.
    const auto read = [&](int64_t count, const float* from, Place<Bf16> copy) -> const void* {
      if (!bf16_) return from;
      ConvertToBf16(stream, count, from, copy.in(scratch));
      return copy.in(scratch);
    };
    SquaredNorms(stream, table_.count(), table_.blocks(), table_.slices(), table_.block_table(), x,
                 sums, norm);
    Normalize(stream, count_, norm, kMuonNormMin, x);
    for (int i = 0; i < kMuonIterations; ++i) {
      const void* const x_read = read(count_, x, x_copy_);
      PENSTOCK_RETURN_IF_ERROR(square_.Run({.left = x_read, .right = x_read, .result = a}));
      const void* const a_read = read(side_count_, a, side_copy_);
      PENSTOCK_RETURN_IF_ERROR(
          fourth_.Run({.left = a_read, .right = a_read, .result = polynomial}));
      LinearCombination(stream, side_count_, kMuonB, a, kMuonC, polynomial, polynomial);
      const void* const polynomial_read = read(side_count_, polynomial, side_copy_);
      PENSTOCK_RETURN_IF_ERROR(apply_.Run({.left = wide_ ? polynomial_read : x_read,
                                           .right = wide_ ? x_read : polynomial_read,
                                           .result = product}));
      LinearCombination(stream, count_, 1.0f, product, kMuonA, x, x);
    }
    return absl::OkStatus();
  }

 private:
  void PlaceScratch() {
    BlockLayout scratch;
    sums_ = scratch.Add<double>(table_.blocks() + 1);
    x_ = scratch.Add<float>(count_);
    product_ = scratch.Add<float>(count_);
    a_ = scratch.Add<float>(side_count_);
    polynomial_ = scratch.Add<float>(side_count_);
    x_copy_ = scratch.Add<Bf16>(bf16_ ? count_ : 0);
    side_copy_ = scratch.Add<Bf16>(bf16_ ? side_count_ : 0);
    scratch_bytes_ = scratch.size_bytes();
  }

  bool wide_ = true;
  bool bf16_ = false;
  int64_t count_ = 0;
  int64_t side_count_ = 0;
  int64_t scratch_bytes_ = 0;
  MatrixProduct square_, fourth_, apply_;
  SliceTable table_;
  // scratch
  Place<double> sums_;           // of the norm's blocks, and the norm
  Place<float> x_, product_;     // [rows, columns]
  Place<float> a_, polynomial_;  // [side, side]
  Place<Bf16> x_copy_, side_copy_;
};

class Muon : public Optimizer {
 public:
  Muon(CudaContext& context, const MuonConfig& config, absl::Span<const ParameterSlice> slices)
      : cuda_(context), config_(config), slices_(slices) {}

  absl::Status Prepare(absl::Span<const ParameterSlice> slices) {
    for (const size_t s : slices_.matrices()) {
      const std::pair<int64_t, int64_t> shape = {slices[s].rows, slices[s].columns};
      if (orthogonalizers_.count(shape) == 0) {
        PENSTOCK_ASSIGN_OR_RETURN(
            orthogonalizers_[shape],
            Orthogonalizer::Create(cuda_, shape.first, shape.second, config_.bf16));
      }
      const Orthogonalizer& orthogonalizer = orthogonalizers_[shape];
      PENSTOCK_RETURN_IF_ERROR(cuda_.layer_scratch().Reserve(orthogonalizer.scratch_bytes()));
      matrices_.push_back({slices[s], s, &orthogonalizer});
    }
    if (slices_.others().empty()) return absl::OkStatus();
    PENSTOCK_ASSIGN_OR_RETURN(others_, MakeOptimizer(cuda_, config_.adamw, slices_.others()));
    return absl::OkStatus();
  }

  absl::Span<const absl::string_view> state_names() const override { return StateNamesOf(config_); }

  absl::Status Step(const StepArguments& a) override {
    for (const Matrix& matrix : matrices_) PENSTOCK_RETURN_IF_ERROR(StepMatrix(a, matrix));
    PENSTOCK_RETURN_IF_ERROR(cuda_.Check("a step of Muon"));
    if (others_ == nullptr) return absl::OkStatus();
    return others_->Step(slices_.ArgumentsOfOthers(a));
  }

 private:
  struct Matrix {
    ParameterSlice slice;
    size_t index;  // of the slice
    const Orthogonalizer* orthogonalizer;
  };

  absl::Status StepMatrix(const StepArguments& a, const Matrix& matrix) {
    const ParameterSlice& slice = matrix.slice;
    void* const scratch = cuda_.layer_scratch().data();
    float* const x = matrix.orthogonalizer->x(scratch);
    NesterovDirection(cuda_.stream(), slice.count, static_cast<float>(config_.momentum),
                      a.gradient_scales[matrix.index], a.gradients + slice.offset,
                      a.state[0] + slice.offset, x);
    PENSTOCK_RETURN_IF_ERROR(matrix.orthogonalizer->Run(cuda_, scratch));
    const Slice on_device = {.offset = slice.offset,
                             .count = slice.count,
                             .decays = slice.decays ? 1 : 0,
                             .first_block = 0,
                             .identity = slice.identity};
    MuonStep(cuda_.stream(), on_device,
             static_cast<float>(MuonKeep(config_, slice, a.learning_rate)),
             static_cast<float>(MuonRate(slice, a.learning_rate)), StepArraysOf(a, nullptr), x);
    return absl::OkStatus();
  }

  CudaContext& cuda_;
  const MuonConfig config_;
  std::map<std::pair<int64_t, int64_t>, Orthogonalizer> orthogonalizers_;  // by rows and columns
  MuonSlices slices_;
  std::vector<Matrix> matrices_;
  std::unique_ptr<Optimizer> others_;  // null if there are none
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeMuon(CudaContext& context, const MuonConfig& config,
                                                    absl::Span<const ParameterSlice> slices) {
  auto optimizer = std::make_unique<Muon>(context, config, slices);
  PENSTOCK_RETURN_IF_ERROR(optimizer->Prepare(slices));
  return optimizer;
}

}  // namespace penstock::cuda
