#include "compute/cuda/product.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "compute/cuda/error.h"

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
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
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

}  // namespace

absl::StatusOr<MatrixProduct> MatrixProduct::Create(CudaContext& context,
                                                    const ProductShape& shape) {
  MatrixProduct product;
  product.context_ = &context;
  product.shape_ = shape;
  absl::Status made = product.Describe(shape);
  if (made.ok()) made = product.Choose();
  if (!made.ok()) {
    return Annotate(made, absl::StrFormat("the product [%d, %d] x [%d, %d]", shape.rows,
                                          shape.inner, shape.inner, shape.columns));
  }
  return product;
}

absl::Status MatrixProduct::Describe(const ProductShape& s) {
  if (HasAuxiliary(s.epilogue) && s.columns % kAuxiliaryMultiple != 0) {
    return absl::UnimplementedError("cuBLASLt's GELU wants columns in multiples of 8");
  }
  PENSTOCK_RETURN_IF_ERROR(
      ToStatus(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describing the product"));
  // The first operand of cuBLASLt is our right one.
  PENSTOCK_RETURN_IF_ERROR(
      Set(CUBLASLT_MATMUL_DESC_TRANSA, s.transposed_right ? CUBLAS_OP_T : CUBLAS_OP_N));
  PENSTOCK_RETURN_IF_ERROR(
      Set(CUBLASLT_MATMUL_DESC_TRANSB, s.transposed_left ? CUBLAS_OP_T : CUBLAS_OP_N));
  PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(s.epilogue)));
  if (HasAuxiliary(s.epilogue)) {
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.columns));
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, s.operands));
  }
  if (s.epilogue == Epilogue::kBias || s.epilogue == Epilogue::kBiasGelu) {
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, s.result));
  }
  PENSTOCK_RETURN_IF_ERROR(MakeLayout(left_, s.operands, s.transposed_left ? s.inner : s.rows,
                                      s.transposed_left ? s.rows : s.inner, s.left_stride));
  PENSTOCK_RETURN_IF_ERROR(MakeLayout(right_, s.operands, s.transposed_right ? s.columns : s.inner,
                                      s.transposed_right ? s.inner : s.columns, s.right_stride));
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
  cublasLtMatmulHeuristicResult_t result = {};
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
    status = cublasLtMatmulAlgoGetHeuristic(context_->blas(), product_, right_, left_, result_,
                                            result_, preference, 1, &result, &found);
  }
  (void)cublasLtMatmulPreferenceDestroy(preference);
  // It answers a combination that it does not know with either of two errors.
  if (status == CUBLAS_STATUS_INVALID_VALUE && shape_.epilogue != Epilogue::kNone) {
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  PENSTOCK_RETURN_IF_ERROR(ToStatus(status, "looking for an algorithm"));
  if (found == 0) return absl::UnimplementedError("cuBLASLt has no algorithm for it");
  algorithm_ = result.algo;
  return absl::OkStatus();
}

template <typename T>
absl::Status MatrixProduct::Set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
  return ToStatus(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value)),
                  "describing the product");
}

absl::Status MatrixProduct::Run(const ProductOperands& o) const {
  if (o.bias != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias));
  }
  if (o.auxiliary != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.auxiliary));
  }
  const float beta = shape_.accumulate || shape_.adds ? 1.0f : 0.0f;
  const void* const addend = shape_.adds ? o.addend : o.result;
  return ToStatus(
      cublasLtMatmul(context_->blas(), product_, &o.alpha, o.right, right_, o.left, left_, &beta,
                     addend, result_, o.result, result_, &algorithm_, context_->library_workspace(),
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
