// Normalisation of channels: statistics of columns and what is done with them. Batch norm, group norm.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {
namespace {

// Vectors of a strip: columns that are summed together in registers, so that a cache line is read at once.
constexpr int kStrip = 4;

template <int kCount>
struct Vectors {
  static constexpr int count = kCount;
};

// body(column, vectors, lanes) over strips of the columns 0 .. width.
template <typename Body>
PENSTOCK_INLINE void ForStrips(int64_t width, Body body) {
  int64_t column = 0;
  for (; column + kStrip * kLanes <= width; column += kStrip * kLanes) {
    body(column, Vectors<kStrip>(), All());
  }
  ForVectors(width - column, [&](int64_t c, auto lanes) { body(column + c, Vectors<1>(), lanes); });
}

// body(offset of the element in its matrix, lanes, column) over the rows of a matrix.
template <typename Body>
PENSTOCK_INLINE void ForElements(int64_t rows, int64_t width, Body body) {
  for (int64_t r = 0; r < rows; ++r) {
    ForVectors(width, [&](int64_t c, auto lanes) { body(r * width + c, c, lanes); });
  }
}

template <typename Lanes>
PENSTOCK_INLINE Floats NormalAt(const ChannelRows& a, int64_t at, int64_t c, Lanes lanes) {
  return (Load(a.input + at, lanes) - Load(a.mean + c, lanes)) *
         Load(a.inverse_deviation + c, lanes);
}

}  // namespace

void ChannelMoments(int64_t rows, int64_t width, const float* values, float* means,
                    float* squares) {
  ForStrips(width, [&](int64_t column, auto vectors, auto lanes) {
    constexpr int kCount = decltype(vectors)::count;
    const auto value = [&](int64_t r, int v) {
      return Load(values + r * width + column + v * kLanes, lanes);
    };
    Floats mean[kCount] = {};
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) mean[v] += value(r, v);
    }
    Floats square[kCount] = {};
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) mean[v] /= static_cast<float>(rows);
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) {
        const Floats centred = value(r, v) - mean[v];
        square[v] += centred * centred;
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      Store(mean[v], means + column + v * kLanes, lanes);
      Store(square[v], squares + column + v * kLanes, lanes);
    }
  });
}

void ChannelNormal(const ChannelRows& a, const float* gain, const float* bias, float* output) {
  ForElements(a.rows, a.width, [&](int64_t at, int64_t c, auto lanes) {
    Store(NormalAt(a, at, c, lanes) * Load(gain + c, lanes) + Load(bias + c, lanes), output + at,
          lanes);
  });
}

void ChannelGradientSums(const ChannelRows& a, const float* gradient, float* sums,
                         float* normal_sums) {
  ForStrips(a.width, [&](int64_t column, auto vectors, auto lanes) {
    constexpr int kCount = decltype(vectors)::count;
    Floats sum[kCount] = {};
    Floats normal_sum[kCount] = {};
    for (int64_t r = 0; r < a.rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) {
        const int64_t c = column + v * kLanes;
        const Floats g = Load(gradient + r * a.width + c, lanes);
        sum[v] += g;
        normal_sum[v] += g * NormalAt(a, r * a.width + c, c, lanes);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      Store(sum[v], sums + column + v * kLanes, lanes);
      Store(normal_sum[v], normal_sums + column + v * kLanes, lanes);
    }
  });
}

void ChannelGradient(const ChannelRows& a, const ChannelGradientFactors& factors,
                     const float* gradient, float* grad_input) {
  ForElements(a.rows, a.width, [&](int64_t at, int64_t c, auto lanes) {
    const Floats from_gradient = Load(gradient + at, lanes) * Load(factors.of_gradient + c, lanes);
    const Floats from_normal = NormalAt(a, at, c, lanes) * Load(factors.of_normal + c, lanes);
    Store(from_gradient - from_normal - Load(factors.offset + c, lanes), grad_input + at, lanes);
  });
}

}  // namespace penstock::PENSTOCK_ISA
