// MatrixProduct and the maps made of it, against plain loops. played_products.h computes what they ask cuBLASLt for, so no GPU
// is needed.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "compute/bf16.h"
#include "compute/cpu/fp8_operands.h"
#include "compute/cuda/context.h"
#include "compute/cuda/linear.h"
#include "compute/cuda/product.h"
#include "tests/compute/fake_cuda.h"
#include "tests/support/status_matchers.h"

namespace penstock::cuda {
namespace {

// A matrix [rows, columns] as it is stored, in 64-byte blocks of the pool, as operands are.
class Matrix {
 public:
  Matrix(CudaContext& context, int64_t rows, int64_t columns, bool transposed, cudaDataType_t type,
         uint64_t seed)
      : rows_(rows), columns_(columns), transposed_(transposed), type_(type) {
    buffer_ = context.pool().Acquire(rows * columns * static_cast<int64_t>(sizeof(float)));
    RandomStream random(seed, /*purpose=*/5);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        Set(row, column, static_cast<float>(random.Normal()));
      }
    }
  }

  void* data() const { return buffer_.data(); }
  float At(int64_t row, int64_t column) const {
    const int64_t at = PlaceOf(row, column);
    return type_ == CUDA_R_32F ? static_cast<const float*>(data())[at]
                               : FromBf16(static_cast<const uint16_t*>(data())[at]);
  }
  // The same matrix of the numbers that fp8 has, with the scale of the whole.
  Matrix InFp8(CudaContext& context, Fp8 format) const {
    Matrix rounded(context, rows_, columns_, transposed_, type_, 0);
    RoundOperandToFp8(format,
                      {static_cast<const uint16_t*>(data()), static_cast<size_t>(rows_ * columns_)},
                      static_cast<uint16_t*>(rounded.data()));
    return rounded;
  }

 private:
  int64_t PlaceOf(int64_t row, int64_t column) const {
    return transposed_ ? column * rows_ + row : row * columns_ + column;
  }
  void Set(int64_t row, int64_t column, float value) {
    if (type_ == CUDA_R_32F) {
      static_cast<float*>(data())[PlaceOf(row, column)] = value;
    } else {
      static_cast<uint16_t*>(data())[PlaceOf(row, column)] = ToBf16(value);
    }
  }

  int64_t rows_, columns_;
  bool transposed_;
  cudaDataType_t type_;
  Buffer buffer_;
};

class CudaNumbersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::Reset();
    fake_cuda::Hold(false);
    fake_cuda::SetProductTimes({1.0f});
    PENSTOCK_ASSERT_OK_AND_ASSIGN(context_, CudaContext::Create(0, Repeatability::kBitwise));
  }
  void TearDown() override { fake_cuda::Reset(); }

  // Runs a product of random operands and compares it with loops.
  void ExpectRight(const ProductShape& shape) {
    const Matrix left(*context_, shape.rows, shape.inner, shape.transposed_left, shape.operands, 1);
    const Matrix right(*context_, shape.inner, shape.columns, shape.transposed_right,
                       shape.operands, 2);
    Matrix result(*context_, shape.rows, shape.columns, false, shape.result, 3);
    const Matrix before(*context_, shape.rows, shape.columns, false, shape.result, 3);
    const Matrix addend(*context_, shape.rows, shape.columns, false, shape.result, 4);
    const Matrix bias(*context_, 1, shape.columns, false, shape.result, 5);
    const Matrix auxiliary(*context_, shape.rows, shape.columns, false, shape.operands, 6);
    const bool has_bias =
        shape.epilogue == Epilogue::kBias || shape.epilogue == Epilogue::kBiasGelu;
    const bool has_sums =
        shape.epilogue == Epilogue::kSumsOfLeft || shape.epilogue == Epilogue::kSumsOfRight;
    const float alpha = has_sums ? 1.0f : 0.5f;
    std::vector<float> sums(std::max(shape.rows, shape.columns), NAN);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const MatrixProduct product,
                                  MatrixProduct::Create(*context_, shape));
    ASSERT_THAT(product.Run({.left = left.data(),
                             .right = right.data(),
                             .result = result.data(),
                             .addend = shape.adds ? addend.data() : nullptr,
                             .bias = has_bias ? bias.data() : nullptr,
                             .auxiliary =
                                 shape.epilogue == Epilogue::kBiasGelu ? auxiliary.data() : nullptr,
                             .sums = has_sums ? sums.data() : nullptr,
                             .alpha = alpha}),
                IsOk());
    fake_cuda::RunAll();
    const Matrix a = shape.in_fp8() ? left.InFp8(*context_, shape.left_fp8) : left;
    const Matrix b = shape.in_fp8() ? right.InFp8(*context_, shape.right_fp8) : right;
    const double tolerance = shape.result == CUDA_R_32F ? 1e-5 : 1e-2;
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t column = 0; column < shape.columns; ++column) {
        double sum = 0.0;
        for (int64_t k = 0; k < shape.inner; ++k) sum += double{a.At(row, k)} * b.At(k, column);
        double expected = alpha * sum;
        if (shape.accumulate) expected += before.At(row, column);
        if (shape.adds) expected += addend.At(row, column);
        if (has_bias) expected += bias.At(0, column);
        if (shape.epilogue == Epilogue::kBiasGelu) {
          EXPECT_NEAR(auxiliary.At(row, column), expected, 1e-2 * std::abs(expected) + 1e-2);
          expected *=
              0.5 *
              (1 + std::tanh(std::sqrt(2 / M_PI) * (expected + 0.044715 * std::pow(expected, 3))));
        }
        ASSERT_NEAR(result.At(row, column), expected,
                    tolerance * (std::abs(expected) + std::sqrt(double(shape.inner))))
            << row << ", " << column;
      }
    }
    for (int64_t i = 0; has_sums && i < static_cast<int64_t>(sums.size()); ++i) {
      const bool of_left = shape.epilogue == Epilogue::kSumsOfLeft;
      if (i >= (of_left ? shape.rows : shape.columns)) break;
      double sum = 0.0;
      for (int64_t k = 0; k < shape.inner; ++k) sum += of_left ? left.At(i, k) : right.At(k, i);
      ASSERT_NEAR(sums[i], sum, 1e-4) << i;
    }
  }

  std::unique_ptr<CudaContext> context_;
};

TEST_F(CudaNumbersTest, Products_OfEveryLayoutAndEpilogue) {
  for (const cudaDataType_t operands : {CUDA_R_32F, CUDA_R_16BF}) {
    for (const bool transposed_left : {false, true}) {
      for (const bool transposed_right : {false, true}) {
        for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu,
                                        Epilogue::kSumsOfLeft, Epilogue::kSumsOfRight}) {
          for (const bool adds : {false, true}) {
            SCOPED_TRACE(absl::StrCat(operands, " ", transposed_left, transposed_right,
                                      " epilogue ", static_cast<int>(epilogue),
                                      adds ? " adds" : ""));
            ExpectRight({.rows = 5,
                         .columns = 8,
                         .inner = 7,
                         .transposed_left = transposed_left,
                         .transposed_right = transposed_right,
                         .accumulate = !adds,
                         .adds = adds,
                         .operands = operands,
                         .result = operands,
                         .epilogue = epilogue});
          }
        }
      }
    }
  }
}

// Tensor cores want both operands with the inner side last, so a copy of each is made, turned where it has to be.
TEST_F(CudaNumbersTest, ProductsInFp8_OfEveryLayout) {
  for (const bool transposed_left : {false, true}) {
    for (const bool transposed_right : {false, true}) {
      for (const bool accumulate : {false, true}) {
        for (const auto& [left, right] : {std::pair(Fp8::kE4M3, Fp8::kE4M3),
                                          {Fp8::kE5M2, Fp8::kE4M3},
                                          {Fp8::kE4M3, Fp8::kE5M2}}) {
          SCOPED_TRACE(absl::StrCat(transposed_left, transposed_right, accumulate));
          ExpectRight({.rows = 16,
                       .columns = 48,
                       .inner = 32,
                       .transposed_left = transposed_left,
                       .transposed_right = transposed_right,
                       .accumulate = accumulate,
                       .operands = CUDA_R_16BF,
                       .left_fp8 = left,
                       .right_fp8 = right});
        }
      }
    }
  }
}

// Products of fp8 share the memory of their copies: one that is queued behind another does not touch them before its turn.
TEST_F(CudaNumbersTest, ProductsInFp8_QueuedBehindEachOther_AreBothRight) {
  const ProductShape shape = {.rows = 32,
                              .columns = 16,
                              .inner = 48,
                              .operands = CUDA_R_16BF,
                              .left_fp8 = Fp8::kE4M3,
                              .right_fp8 = Fp8::kE4M3};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const MatrixProduct product,
                                MatrixProduct::Create(*context_, shape));
  fake_cuda::Hold(true);
  std::vector<Matrix> results;
  const auto left = [&](uint64_t seed) {
    return Matrix(*context_, 32, 48, false, CUDA_R_16BF, seed);
  };
  const Matrix right(*context_, 48, 16, false, CUDA_R_16BF, 9);
  const Matrix first = left(1), second = left(2);
  for (const Matrix* operand : {&first, &second}) {
    results.emplace_back(*context_, 32, 16, false, CUDA_R_32F, 0);
    ASSERT_THAT(
        product.Run(
            {.left = operand->data(), .right = right.data(), .result = results.back().data()}),
        IsOk());
  }
  fake_cuda::RunAll();
  const Matrix b = right.InFp8(*context_, Fp8::kE4M3);
  for (int i = 0; i < 2; ++i) {
    const Matrix a = (i == 0 ? first : second).InFp8(*context_, Fp8::kE4M3);
    double expected = 0.0;
    for (int64_t k = 0; k < 48; ++k) expected += double{a.At(31, k)} * b.At(k, 15);
    EXPECT_NEAR(results[i].At(31, 15), expected, 1e-4);
  }
}

TEST_F(CudaNumbersTest, WeightGradient_SumsWhatTheBiasWants) {
  for (const bool outputs_first : {false, true}) {
    for (const bool refused : {false, true}) {
      fake_cuda::RefuseEpilogues(refused);
      const LinearShape shape = {
          .rows = 6, .inputs = 4, .outputs = 8, .outputs_first = outputs_first};
      const auto made = WeightGradient<Bf16>::Create(*context_, shape, 0, /*has_bias=*/true);
      ASSERT_THAT(made, IsOk());
      EXPECT_EQ(made->sums_outputs(), !refused);
      const Matrix x(*context_, 6, 4, false, CUDA_R_16BF, 1);
      const Matrix dy(*context_, 6, 8, false, CUDA_R_16BF, 2);
      std::vector<float> gradient(32, 1.0f), sums(8, NAN);
      const int64_t offset = 0;
      const GradientView view = {gradient.data(), &offset};
      const auto* const x_data = static_cast<const Bf16*>(x.data());
      const auto* const dy_data = static_cast<const Bf16*>(dy.data());
      ASSERT_THAT(refused ? made->Add(view, x_data, dy_data)
                          : made->AddAndSum(view, x_data, dy_data, sums.data()),
                  IsOk());
      fake_cuda::RunAll();
      for (int64_t input = 0; input < 4; ++input) {
        for (int64_t output = 0; output < 8; ++output) {
          double expected = 1.0;
          for (int64_t row = 0; row < 6; ++row) {
            expected += double{x.At(row, input)} * dy.At(row, output);
          }
          EXPECT_NEAR(gradient[outputs_first ? output * 4 + input : input * 8 + output], expected,
                      1e-5);
        }
      }
      for (int64_t output = 0; output < 8 && !refused; ++output) {
        double expected = 0.0;
        for (int64_t row = 0; row < 6; ++row) expected += dy.At(row, output);
        EXPECT_NEAR(sums[output], expected, 1e-5);
      }
    }
  }
}

// All three products of a map, in fp8 where its sides allow that: what the CPU multiplies in fp8, too.
TEST_F(CudaNumbersTest, MapsInFp8_HaveTheFormatsOfValuesAndGradients) {
  const LinearShape fits = {.rows = 16, .inputs = 32, .outputs = 48, .fp8 = true};
  EXPECT_EQ(ForwardShape<Bf16>(fits, CUDA_R_32F).left_fp8, Fp8::kE4M3);
  EXPECT_EQ(ForwardShape<Bf16>(fits, CUDA_R_32F).right_fp8, Fp8::kE4M3);
  EXPECT_EQ(BackwardInputShape<Bf16>(fits, CUDA_R_32F).left_fp8, Fp8::kE5M2);
  EXPECT_EQ(BackwardInputShape<Bf16>(fits, CUDA_R_32F).right_fp8, Fp8::kE4M3);
  LinearShape odd = fits;
  odd.inputs = 40;
  EXPECT_FALSE(ForwardShape<Bf16>(odd, CUDA_R_32F).in_fp8());
  EXPECT_FALSE(BackwardInputShape<Bf16>(odd, CUDA_R_32F).in_fp8());
}

}  // namespace
}  // namespace penstock::cuda
