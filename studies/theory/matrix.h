// The little linear algebra that the studies need: dense, double precision, in plain loops.
//
// A value and pure functions; thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace penstock {

// [rows, columns], row by row.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(int64_t row_count, int64_t column_count)
      : rows(row_count), columns(column_count), values(row_count * column_count) {}

  double& At(int64_t row, int64_t column) { return values[row * columns + column]; }
  double At(int64_t row, int64_t column) const { return values[row * columns + column]; }
  double* Row(int64_t row) { return values.data() + row * columns; }
  const double* Row(int64_t row) const { return values.data() + row * columns; }
};

// The sum of a[i] * b[i]. The order of the additions is fixed, so results are repeatable.
double Dot(const double* a, const double* b, int64_t size);
// y[i] += factor * x[i].
void AddScaled(double factor, const double* x, int64_t size, double* y);
double SquaredNorm(absl::Span<const double> x);

// Makes the columns orthonormal (modified Gram-Schmidt, twice). REQUIRES: they are independent.
void Orthonormalize(Matrix& matrix);

// Solves `matrix` x = b in place of b by Cholesky factorization, in place of the lower half of `matrix`.
// Returns whether the matrix is positive definite to working precision; if not, b is spoilt.
bool SolvePositiveDefinite(Matrix& matrix, std::vector<double>& b);

// The largest eigenvalue of the transpose of `matrix` times itself, divided by its rows: by power
// iteration, to a relative precision of about 1e-9 (from below).
double LargestGramEigenvalue(const Matrix& matrix);

}  // namespace penstock
