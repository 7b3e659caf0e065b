// The synthetic problems of arXiv 2606.03498, by seed.
//
// Pure functions. Randomness is that of base/random.h, so a seed means the same problem everywhere; the
// paper's own (NumPy's) numbers are not reproduced.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "studies/theory/problem.h"

namespace penstock {

struct ProblemSize {
  int64_t rows = 600;   // batch 10 and 60 minibatches
  int64_t width = 512;  // parameters
};

// X and w* with independent standard normal entries, y = X w*. REQUIRES (so that the optimum is 0 and
// unique): rows >= width.
Problem RandomQuadratic(const ProblemSize& size, uint64_t seed);

// Nesterov's tridiagonal quadratic: X'X / rows = tridiag(-1, 2, -1) + mu I exactly, X = sqrt(rows) Q C'
// with orthonormal columns Q and the Cholesky factor C; y = X w* as above. Its curvature runs from mu to
// 4 + mu, and neighbouring blocks are coupled. REQUIRES: rows >= width.
Problem NesterovQuadratic(const ProblemSize& size, uint64_t seed, double mu = 0.01);

// Logistic regression: X and w* as above, label 1 with probability sigmoid(x w*). The optimum is that of
// MinimizeLogistic.
Problem SyntheticLogistic(const ProblemSize& size, uint64_t seed, double l2 = 1e-4);

// The least value of a logistic problem with l2 > 0, by Newton's method with halved steps; the squared
// norm of the gradient is then below 1e-20, far below what the studies tell apart.
// Errors: InvalidArgument if the features are so large, or so alike, that l2 vanishes beside their products.
absl::StatusOr<double> MinimizeLogistic(const Problem& problem);

}  // namespace penstock
