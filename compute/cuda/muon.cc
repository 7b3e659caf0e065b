// Muon; see MuonConfig for the formula. All of it is queued, nothing waits for the device.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute/cuda/product.h"
#include "compute/cuda/slices.h"

namespace penstock::cuda {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kDoubleBytes = sizeof(double);

// Newton and Schulz's iteration for matrices of one shape. A = X X^T or X^T X, whichever is smaller.
class Orthogonalizer {
 public:
  static absl::StatusOr<Orthogonalizer> Create(CudaContext& context, int64_t rows,
                                               int64_t columns) {
    Orthogonalizer made;
    made.wide_ = rows <= columns;
    made.count_ = rows * columns;
    const int64_t side = std::min(rows, columns);
    made.side_count_ = side * side;
    PENSTOCK_ASSIGN_OR_RETURN(made.square_,
                              MatrixProduct::Create(context, {.rows = side,
                                                              .columns = side,
                                                              .inner = std::max(rows, columns),
                                                              .transposed_left = !made.wide_,
                                                              .transposed_right = made.wide_}));
    PENSTOCK_ASSIGN_OR_RETURN(
        made.fourth_,
        MatrixProduct::Create(context, {.rows = side, .columns = side, .inner = side}));
    PENSTOCK_ASSIGN_OR_RETURN(
        made.apply_,
        MatrixProduct::Create(context, {.rows = rows, .columns = columns, .inner = side}));
    // The norm of X, which is at the start of the scratch memory.
    const ParameterSlice whole = {.offset = 0, .count = made.count_};
    PENSTOCK_ASSIGN_OR_RETURN(made.table_, SliceTable::Create(context, {&whole, 1}));
    return made;
  }

  // Bytes: the sums of the norm, X, the next X, A and its polynomial.
  int64_t scratch_bytes() const { return sums_bytes() + 2 * (count_ + side_count_) * kFloatBytes; }
  float* x(void* scratch) const {
    return reinterpret_cast<float*>(static_cast<char*>(scratch) + sums_bytes());
  }

  // Normalizes X and orthogonalizes it in place.
  absl::Status Run(CudaContext& context, void* scratch) const {
    const cudaStream_t stream = context.stream();
    auto* const sums = static_cast<double*>(scratch);
    float* const x = this->x(scratch);
    float* const product = x + count_;
    float* const a = product + count_;
    float* const polynomial = a + side_count_;
    double* const norm = sums + table_.blocks();
    SquaredNorms(stream, table_.count(), table_.blocks(), table_.slices(), table_.block_table(), x,
                 sums, norm);
    Normalize(stream, count_, norm, kMuonNormMin, x);
    for (int i = 0; i < kMuonIterations; ++i) {
      PENSTOCK_RETURN_IF_ERROR(square_.Run({.left = x, .right = x, .result = a}));
      PENSTOCK_RETURN_IF_ERROR(fourth_.Run({.left = a, .right = a, .result = polynomial}));
      LinearCombination(stream, side_count_, kMuonB, a, kMuonC, polynomial, polynomial);
      PENSTOCK_RETURN_IF_ERROR(apply_.Run(
          {.left = wide_ ? polynomial : x, .right = wide_ ? x : polynomial, .result = product}));
      LinearCombination(stream, count_, 1.0f, product, kMuonA, x, x);
    }
    return absl::OkStatus();
  }

 private:
  // The sums of the norm's blocks and the norm, so that X begins at a multiple of 64 bytes.
  int64_t sums_bytes() const { return ((table_.blocks() + 1) * kDoubleBytes + 63) / 64 * 64; }

  bool wide_ = true;
  int64_t count_ = 0;
  int64_t side_count_ = 0;
  MatrixProduct square_, fourth_, apply_;
  SliceTable table_;
};

class Muon : public Optimizer {
 public:
  Muon(CudaContext& context, const MuonConfig& config, absl::Span<const ParameterSlice> slices)
      : cuda_(context), config_(config), slices_(slices) {}

  absl::Status Prepare(absl::Span<const ParameterSlice> slices) {
    for (const size_t s : slices_.matrices()) {
      const std::pair<int64_t, int64_t> shape = {slices[s].rows, slices[s].columns};
      if (orthogonalizers_.count(shape) == 0) {
        PENSTOCK_ASSIGN_OR_RETURN(orthogonalizers_[shape],
                                  Orthogonalizer::Create(cuda_, shape.first, shape.second));
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
