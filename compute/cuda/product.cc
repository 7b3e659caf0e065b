#include "compute/cuda/product.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/fp8.h"

namespace penstock::cuda {
namespace {

// The auxiliary's rows must be a multiple of this: documentation of CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD.
constexpr int kAuxiliaryMultiple = 8;

cublasLtEpilogue_t EpilogueOf(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluSlope:
      return CUBLASLT_EPILOGUE_DGELU;
    // To cuBLASLt our right operand is A.
    case Epilogue::kSumsOfRight:
      return CUBLASLT_EPILOGUE_BGRADA;
    case Epilogue::kSumsOfLeft:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// How many of the algorithms that the heuristics rank first are timed, and how often each runs, after once untimed.
constexpr int kTimed = 8;
constexpr int kTimedRuns = 3;

bool HasBias(Epilogue epilogue) {
  return epilogue == Epilogue::kBias || epilogue == Epilogue::kBiasGelu;
}
bool HasSums(Epilogue epilogue) {
  return epilogue == Epilogue::kSumsOfRight || epilogue == Epilogue::kSumsOfLeft;
}
bool HasAuxiliary(Epilogue epilogue) {
  return epilogue == Epilogue::kBiasGelu || epilogue == Epilogue::kGeluSlope;
}

// The layout of a row-major matrix [rows, columns], which to cuBLASLt is its transpose.
absl::Status MakeLayout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, int64_t rows,
                        int64_t columns, int64_t stride) {
  return ToStatus(
      cublasLtMatrixLayoutCreate(&layout, type, columns, rows, stride == 0 ? columns : stride),
      "describing a matrix");
}

int64_t BytesOf(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

// What cuBLASLt reads.
cudaDataType_t TypeRead(const ProductShape& shape, Fp8 fp8) {
  switch (fp8) {
    case Fp8::kNone:
      return shape.operands;
    case Fp8::kE4M3:
      return CUDA_R_8F_E4M3;
    case Fp8::kE5M2:
      return CUDA_R_8F_E5M2;
  }
  return shape.operands;
}

// Where the operands of a product of fp8 are. Both are stored with the inner side last, which tensor cores want.
struct Fp8Operands {
  explicit Fp8Operands(const ProductShape& shape)
      : scales(layout.Add<Fp8Scale>(2)),
        left(layout.Add<uint8_t>(shape.rows * shape.inner)),
        right(layout.Add<uint8_t>(shape.inner * shape.columns)) {}

  BlockLayout layout;
  Place<Fp8Scale> scales;  // of left, right
  Place<uint8_t> left, right;
};

// Of a matrix as it is stored.
int64_t StoredBytes(cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
  return rows * (stride == 0 ? columns : stride) * BytesOf(type);
}

// Operands of a shape in memory of their own, beside the pool, whose peak is the job's.
class TimedMemory {
 public:
  explicit TimedMemory(const ProductShape& s) {
    BlockLayout layout;
    const auto left = layout.Add<char>(
        s.transposed_left ? StoredBytes(s.operands, s.inner, s.rows, s.left_stride)
                          : StoredBytes(s.operands, s.rows, s.inner, s.left_stride));
    const auto right = layout.Add<char>(
        s.transposed_right ? StoredBytes(s.operands, s.columns, s.inner, s.right_stride)
                           : StoredBytes(s.operands, s.inner, s.columns, s.right_stride));
    const int64_t result_bytes = StoredBytes(s.result, s.rows, s.columns, s.result_stride);
    const auto result = layout.Add<char>(result_bytes);
    const auto addend = layout.Add<char>(s.adds ? result_bytes : 0);
    const auto bias = layout.Add<char>(s.columns * BytesOf(s.result));
    const auto sums = layout.Add<float>(HasSums(s.epilogue) ? std::max(s.rows, s.columns) : 0);
    const auto auxiliary =
        layout.Add<char>(HasAuxiliary(s.epilogue) ? s.rows * s.columns * BytesOf(s.operands) : 0);
    if (cudaMalloc(&block_, layout.size_bytes()) != cudaSuccess) return;
    works_ = cudaMemset(block_, 0, layout.size_bytes()) == cudaSuccess;
    operands_ = {.left = left.in(block_), .right = right.in(block_), .result = result.in(block_)};
    if (s.adds) operands_.addend = addend.in(block_);
    if (HasBias(s.epilogue)) operands_.bias = bias.in(block_);
    if (HasSums(s.epilogue)) operands_.sums = sums.in(block_);
    if (HasAuxiliary(s.epilogue)) operands_.auxiliary = auxiliary.in(block_);
  }
  ~TimedMemory() {
    if (block_ != nullptr) (void)cudaFree(block_);
  }
  TimedMemory(const TimedMemory&) = delete;
  TimedMemory& operator=(const TimedMemory&) = delete;

  bool works() const { return works_; }
  const ProductOperands& operands() const { return operands_; }

 private:
  void* block_ = nullptr;
  bool works_ = false;
  ProductOperands operands_;
};

// The device's time of what is queued on the compute stream.
class Stopwatch {
 public:
  explicit Stopwatch(const CudaContext& context) : cuda_(context) {
    works_ = cudaDeviceSynchronize() == cudaSuccess && cudaEventCreate(&start_) == cudaSuccess &&
             cudaEventCreate(&stop_) == cudaSuccess;
  }
  ~Stopwatch() {
    for (cudaEvent_t event : {start_, stop_}) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  bool works() const { return works_; }
  // Of some runs together; none if one fails.
  template <typename Queue>
  std::optional<float> Time(const Queue& queue) const {
    if (!queue() || cudaEventRecord(start_, cuda_.stream()) != cudaSuccess) return std::nullopt;
    for (int run = 0; run < kTimedRuns; ++run) {
      if (!queue()) return std::nullopt;
    }
    float ms = 0.0f;
    if (cudaEventRecord(stop_, cuda_.stream()) != cudaSuccess ||
        !cuda_.WaitFor(stop_, "a timed product").ok() ||
        cudaEventElapsedTime(&ms, start_, stop_) != cudaSuccess) {
      return std::nullopt;
    }
    return ms;
  }

 private:
  const CudaContext& cuda_;
  bool works_ = false;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

}  // namespace

absl::StatusOr<MatrixProduct> MatrixProduct::Create(CudaContext& context,
                                                    const ProductShape& shape) {
  MatrixProduct product;
  product.context_ = &context;
  product.shape_ = shape;
  absl::Status made;
  if (shape.in_fp8()) {
    made = context.fp8_scratch().Reserve(Fp8Operands(shape).layout.size_bytes());
  }
  if (made.ok()) made = product.Describe(shape);
  if (made.ok()) made = product.Choose();
  if (!made.ok()) {
    return Annotate(made, absl::StrFormat("the product [%d, %d] x [%d, %d]", shape.rows,
                                          shape.inner, shape.inner, shape.columns));
  }
  return product;
}

absl::Status MatrixProduct::Describe(const ProductShape& s) {
  if (s.in_fp8() && HasBias(s.epilogue) && s.result == CUDA_R_32F) {
    return absl::UnimplementedError("cuBLASLt adds no bias of f32 to a product of fp8");
  }
  if (HasAuxiliary(s.epilogue) && s.columns % kAuxiliaryMultiple != 0) {
    return absl::UnimplementedError("cuBLASLt's GELU wants columns in multiples of 8");
  }
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describing the product"));
  const bool transposed_left = s.transposed_left && !s.in_fp8();
  const bool transposed_right = s.transposed_right || s.in_fp8();
  // The first operand of cuBLASLt is our right one.
  PENSTOCK_RETURN_IF_ERROR(
      Set(CUBLASLT_MATMUL_DESC_TRANSA, transposed_right ? CUBLAS_OP_T : CUBLAS_OP_N));
  PENSTOCK_RETURN_IF_ERROR(
      Set(CUBLASLT_MATMUL_DESC_TRANSB, transposed_left ? CUBLAS_OP_T : CUBLAS_OP_N));
  PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(s.epilogue)));
  if (s.in_fp8()) PENSTOCK_RETURN_IF_ERROR(SetScales());
  if (HasAuxiliary(s.epilogue)) {
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.columns));
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, s.operands));
  }
  if (HasBias(s.epilogue)) {
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, s.result));
  } else if (HasSums(s.epilogue)) {
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F));
  }
  PENSTOCK_RETURN_IF_ERROR(MakeLayout(left_, TypeRead(s, s.left_fp8),
                                      transposed_left ? s.inner : s.rows,
                                      transposed_left ? s.rows : s.inner, s.left_stride));
  PENSTOCK_RETURN_IF_ERROR(MakeLayout(right_, TypeRead(s, s.right_fp8),
                                      transposed_right ? s.columns : s.inner,
                                      transposed_right ? s.inner : s.columns, s.right_stride));
  return MakeLayout(result_, s.result, s.rows, s.columns, s.result_stride);
}

absl::Status MatrixProduct::Choose() {
  cublasLtMatmulPreference_t preference = nullptr;
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cublasLtMatmulPreferenceCreate(&preference), "asking for an algorithm"));
  const auto workspace = static_cast<size_t>(context_->library_workspace_bytes());
  // In place, the order of sums is the order in which blocks finish.
  const uint32_t reductions = context_->repeatability() == Repeatability::kFast
                                  ? CUBLASLT_REDUCTION_SCHEME_MASK
                                  : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const auto alignment = static_cast<uint32_t>(kAlignmentBytes);
  const bool times = context_->repeatability() == Repeatability::kFast;
  std::array<cublasLtMatmulHeuristicResult_t, kTimed> results = {};
  int found = 0;
  cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions));
  }
  for (const cublasLtMatmulPreferenceAttributes_t matrix :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    if (status != CUBLAS_STATUS_SUCCESS) break;
    status =
        cublasLtMatmulPreferenceSetAttribute(preference, matrix, &alignment, sizeof(alignment));
  }
  if (status == CUBLAS_STATUS_SUCCESS) {
    status =
        cublasLtMatmulAlgoGetHeuristic(context_->blas(), product_, right_, left_, result_, result_,
                                       preference, times ? kTimed : 1, results.data(), &found);
  }
  (void)cublasLtMatmulPreferenceDestroy(preference);
  // It answers a combination that it does not know with either of two errors.
  if (status == CUBLAS_STATUS_INVALID_VALUE &&
      (shape_.epilogue != Epilogue::kNone || shape_.in_fp8())) {
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  PENSTOCK_RETURN_IF_ERROR(ToStatus(status, "looking for an algorithm"));
  if (found == 0) return absl::UnimplementedError("cuBLASLt has no algorithm for it");
  algorithm_ = Fastest(absl::MakeConstSpan(results).first(static_cast<size_t>(found)));
  return absl::OkStatus();
}

cublasLtMatmulAlgo_t MatrixProduct::Fastest(
    absl::Span<const cublasLtMatmulHeuristicResult_t> candidates) const {
  if (candidates.size() == 1) return candidates.front().algo;
  ProductChoices& choices = context_->product_choices();
  if (const cublasLtMatmulAlgo_t* known = choices.Find(shape_)) return *known;
  const Stopwatch stopwatch(*context_);
  const TimedMemory memory(shape_);
  const cublasLtMatmulAlgo_t* fastest = &candidates.front().algo;
  std::optional<float> least_ms;
  if (stopwatch.works() && memory.works()) {
    for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) {
      const std::optional<float> ms =
          stopwatch.Time([&] { return Queue(memory.operands(), candidate.algo).ok(); });
      if (!ms.has_value() || (least_ms.has_value() && *ms >= *least_ms)) continue;
      least_ms = ms;
      fastest = &candidate.algo;
    }
  }
  (void)cudaGetLastError();  // of what could not be timed
  if (least_ms.has_value()) choices.Add(shape_, *fastest);
  return *fastest;
}

template <typename T>
absl::Status MatrixProduct::Set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
  return ToStatus(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value)),
                  "describing the product");
}

absl::Status MatrixProduct::Run(const ProductOperands& operands) const {
  if (!shape_.in_fp8()) return Queue(operands, algorithm_);
  ProductOperands rounded = operands;
  RoundOperands(rounded);
  return Queue(rounded, algorithm_);
}

void MatrixProduct::RoundOperands(ProductOperands& operands) const {
  const ProductShape& s = shape_;
  const Fp8Operands places(s);
  void* const memory = context_->fp8_scratch().data();
  Fp8Scale* const scales = places.scales.in(memory);
  const auto round = [this](Fp8 format, bool transposed, int64_t rows, int64_t columns,
                            const void* from, uint8_t* to, Fp8Scale* scale) {
    RoundToFp8(context_->stream(), format, transposed, rows, columns,
               static_cast<const Bf16*>(from), to, scale);
    return to;
  };
  operands.left =
      round(s.left_fp8, s.transposed_left, s.transposed_left ? s.inner : s.rows,
            s.transposed_left ? s.rows : s.inner, operands.left, places.left.in(memory), scales);
  operands.right = round(s.right_fp8, !s.transposed_right, s.transposed_right ? s.columns : s.inner,
                         s.transposed_right ? s.inner : s.columns, operands.right,
                         places.right.in(memory), scales + 1);
}

absl::Status MatrixProduct::SetScales() const {
  Fp8Scale* const scales = Fp8Operands(shape_).scales.in(context_->fp8_scratch().data());
  PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scales[1].inverse));
  return Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scales[0].inverse);
}

absl::Status MatrixProduct::Queue(const ProductOperands& o,
                                  const cublasLtMatmulAlgo_t& algorithm) const {
  if (o.bias != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias));
  }
  if (o.sums != nullptr) {
    PENSTOCK_CHECK(o.alpha == 1.0f);  // it is not documented whether sums are multiplied, too
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.sums));
  }
  if (o.auxiliary != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.auxiliary));
  }
  if (shape_.in_fp8()) PENSTOCK_RETURN_IF_ERROR(SetScales());  // their memory may have moved
  const float beta = shape_.accumulate || shape_.adds ? 1.0f : 0.0f;
  const void* const addend = shape_.adds ? o.addend : o.result;
  return ToStatus(
      cublasLtMatmul(context_->blas(), product_, &o.alpha, o.right, right_, o.left, left_, &beta,
                     addend, result_, o.result, result_, &algorithm, context_->library_workspace(),
                     context_->library_workspace_bytes(), context_->stream()),
      "a matrix product");
}

MatrixProduct::MatrixProduct(MatrixProduct&& other) noexcept { Swap(other); }

MatrixProduct& MatrixProduct::operator=(MatrixProduct&& other) noexcept {
  Swap(other);
  return *this;
}

void MatrixProduct::Swap(MatrixProduct& other) {
  std::swap(context_, other.context_);
  std::swap(shape_, other.shape_);
  std::swap(product_, other.product_);
  std::swap(left_, other.left_);
  std::swap(right_, other.right_);
  std::swap(result_, other.result_);
  std::swap(algorithm_, other.algorithm_);
}

MatrixProduct::~MatrixProduct() {
  if (product_ != nullptr) (void)cublasLtMatmulDescDestroy(product_);
  for (cublasLtMatrixLayout_t layout : {left_, right_, result_}) {
    if (layout != nullptr) (void)cublasLtMatrixLayoutDestroy(layout);
  }
}

}  // namespace penstock::cuda
