#include "studies/theory/matrix.h"

#include <array>
#include <cmath>

#include "base/random.h"

namespace penstock {

double Dot(const double* a, const double* b, int64_t size) {
  // Sums that do not wait for each other, for the compiler to keep in vector registers.
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0.0;
  for (; i < size; ++i) sum += a[i] * b[i];
  for (const double lane : sums) sum += lane;
  return sum;
}

void AddScaled(double factor, const double* x, int64_t size, double* y) {
  for (int64_t i = 0; i < size; ++i) y[i] += factor * x[i];
}

double SquaredNorm(absl::Span<const double> x) {
  return Dot(x.data(), x.data(), static_cast<int64_t>(x.size()));
}

void Orthonormalize(Matrix& matrix) {
  // Works on the transpose, whose rows lie together in memory.
  Matrix columns(matrix.columns, matrix.rows);
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      columns.At(column, row) = matrix.At(row, column);
    }
  }
  for (int64_t column = 0; column < columns.rows; ++column) {
    double* vector = columns.Row(column);
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t earlier = 0; earlier < column; ++earlier) {
        const double overlap = Dot(columns.Row(earlier), vector, columns.columns);
        AddScaled(-overlap, columns.Row(earlier), columns.columns, vector);
      }
    }
    const double scale = 1.0 / std::sqrt(Dot(vector, vector, columns.columns));
    for (int64_t row = 0; row < columns.columns; ++row) {
      vector[row] *= scale;
      matrix.At(row, column) = vector[row];
    }
  }
}

bool SolvePositiveDefinite(Matrix& matrix, std::vector<double>& b) {
  const int64_t size = matrix.rows;
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const double rest = matrix.At(i, j) - Dot(matrix.Row(i), matrix.Row(j), j);
      if (i != j) {
        matrix.At(i, j) = rest / matrix.At(j, j);
      } else if (rest > 0.0) {
        matrix.At(i, i) = std::sqrt(rest);
      } else {
        return false;
      }
    }
    b[i] = (b[i] - Dot(matrix.Row(i), b.data(), i)) / matrix.At(i, i);
  }
  for (int64_t i = size - 1; i >= 0; --i) {
    b[i] /= matrix.At(i, i);
    AddScaled(-b[i], matrix.Row(i), i, b.data());
  }
  return true;
}

double LargestGramEigenvalue(const Matrix& matrix) {
  constexpr int kIterationsMax = 5000;
  constexpr double kPrecision = 1e-11;
  constexpr uint64_t kStartPurpose = 0x706f776572;  // any vector that is not special will do
  RandomStream random(0, kStartPurpose);
  std::vector<double> vector(matrix.columns);
  for (double& value : vector) value = random.Normal();
  double eigenvalue = 0.0;
  for (int iteration = 0; iteration < kIterationsMax; ++iteration) {
    const double scale = 1.0 / std::sqrt(SquaredNorm(vector));
    for (double& value : vector) value *= scale;
    std::vector<double> image(matrix.columns);
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const double product = Dot(matrix.Row(row), vector.data(), matrix.columns);
      AddScaled(product / static_cast<double>(matrix.rows), matrix.Row(row), matrix.columns,
                image.data());
    }
    const double before = eigenvalue;
    eigenvalue = Dot(vector.data(), image.data(), matrix.columns);
    vector = std::move(image);
    if (std::fabs(eigenvalue - before) <= kPrecision * eigenvalue) break;
  }
  return eigenvalue;
}

}  // namespace penstock
