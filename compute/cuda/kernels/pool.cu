// Poolings. Backward, each input gathers from the windows that see it, so that nothing is added atomically.
#include "compute/cuda/kernels/for_each.cuh"
#include "compute/cuda/kernels/images.h"

namespace penstock::cuda {
namespace {

struct Range {
  int64_t first, end;
};

// The inputs that output i of an average sees; some may lie outside.
__device__ inline Range Seen(const ImageAxis& axis, int64_t i) {
  if (axis.kernel == 0) {
    return {i * axis.inputs / axis.outputs,
            ((i + 1) * axis.inputs + axis.outputs - 1) / axis.outputs};
  }
  const int64_t first = i * axis.stride - axis.before;
  return {first, first + axis.kernel};
}

// The outputs that see input j.
__device__ inline Range Seers(const ImageAxis& axis, int64_t j) {
  if (axis.kernel == 0) {
    return {j * axis.outputs / axis.inputs,
            ((j + 1) * axis.outputs + axis.inputs - 1) / axis.inputs};
  }
  const int64_t before_all =
      j + axis.before - axis.kernel + 1;  // input j is the last of a window that begins there
  const int64_t first = before_all <= 0 ? 0 : (before_all + axis.stride - 1) / axis.stride;
  return {first, min((j + axis.before) / axis.stride + 1, axis.outputs)};
}

__device__ inline int64_t SizeOf(const Range& range) { return range.end - range.first; }

__device__ inline Range Within(const Range& range, const ImageAxis& axis) {
  return {max(range.first, int64_t{0}), min(range.end, axis.inputs)};
}

}  // namespace

void MaxPoolForward(cudaStream_t stream, int64_t samples, int64_t channels, const ImageAxis& height,
                    const ImageAxis& width, const float* x, float* y, int32_t* places) {
  const ImageAxis h = height, w = width;
  const int64_t count = samples * h.outputs * w.outputs * channels;
  ForEach(stream, count, [=] __device__(int64_t at) {
    const int64_t channel = at % channels;
    const Range columns = Seen(w, at / channels % w.outputs);
    const Range rows = Seen(h, at / channels / w.outputs % h.outputs);
    const int64_t sample = at / channels / w.outputs / h.outputs;
    float largest = -INFINITY;
    int32_t place = -1;
    const Range inner_rows = Within(rows, h), inner_columns = Within(columns, w);
    for (int64_t row = inner_rows.first; row < inner_rows.end; ++row) {
      for (int64_t column = inner_columns.first; column < inner_columns.end; ++column) {
        const float value = x[((sample * h.inputs + row) * w.inputs + column) * channels + channel];
        if (place >= 0 && !(value > largest) && value == value) continue;
        largest = value;
        place = static_cast<int32_t>((row - rows.first) * w.kernel + column - columns.first);
      }
    }
    y[at] = largest;
    places[at] = place;
  });
}

void MaxPoolBackward(cudaStream_t stream, int64_t samples, int64_t channels,
                     const ImageAxis& height, const ImageAxis& width, const float* dy,
                     const int32_t* places, float* dx) {
  const ImageAxis h = height, w = width;
  const int64_t count = samples * h.inputs * w.inputs * channels;
  ForEach(stream, count, [=] __device__(int64_t at) {
    const int64_t channel = at % channels;
    const int64_t column = at / channels % w.inputs;
    const int64_t row = at / channels / w.inputs % h.inputs;
    const int64_t sample = at / channels / w.inputs / h.inputs;
    const Range rows = Seers(h, row), columns = Seers(w, column);
    float sum = 0.0f;
    for (int64_t i = rows.first; i < rows.end; ++i) {
      for (int64_t j = columns.first; j < columns.end; ++j) {
        const int64_t output = ((sample * h.outputs + i) * w.outputs + j) * channels + channel;
        const int64_t place = (row - Seen(h, i).first) * w.kernel + column - Seen(w, j).first;
        if (places[output] == place) sum += dy[output];
      }
    }
    dx[at] = sum;
  });
}

void AvgPoolForward(cudaStream_t stream, int64_t samples, int64_t channels, const ImageAxis& height,
                    const ImageAxis& width, const float* x, float* y) {
  const ImageAxis h = height, w = width;
  const int64_t count = samples * h.outputs * w.outputs * channels;
  ForEach(stream, count, [=] __device__(int64_t at) {
    const int64_t channel = at % channels;
    const Range columns = Seen(w, at / channels % w.outputs);
    const Range rows = Seen(h, at / channels / w.outputs % h.outputs);
    const int64_t sample = at / channels / w.outputs / h.outputs;
    const Range inner_rows = Within(rows, h), inner_columns = Within(columns, w);
    float sum = 0.0f;
    for (int64_t row = inner_rows.first; row < inner_rows.end; ++row) {
      for (int64_t column = inner_columns.first; column < inner_columns.end; ++column) {
        sum += x[((sample * h.inputs + row) * w.inputs + column) * channels + channel];
      }
    }
    y[at] = sum / static_cast<float>(SizeOf(rows) * SizeOf(columns));
  });
}

void AvgPoolBackward(cudaStream_t stream, int64_t samples, int64_t channels,
                     const ImageAxis& height, const ImageAxis& width, const float* dy, float* dx) {
  const ImageAxis h = height, w = width;
  const int64_t count = samples * h.inputs * w.inputs * channels;
  ForEach(stream, count, [=] __device__(int64_t at) {
    const int64_t channel = at % channels;
    const int64_t column = at / channels % w.inputs;
    const int64_t row = at / channels / w.inputs % h.inputs;
    const int64_t sample = at / channels / w.inputs / h.inputs;
    const Range rows = Seers(h, row), columns = Seers(w, column);
    float sum = 0.0f;
    for (int64_t i = rows.first; i < rows.end; ++i) {
      for (int64_t j = columns.first; j < columns.end; ++j) {
        const int64_t output = ((sample * h.outputs + i) * w.outputs + j) * channels + channel;
        sum += dy[output] / static_cast<float>(SizeOf(Seen(h, i)) * SizeOf(Seen(w, j)));
      }
    }
    dx[at] = sum;
  });
}

}  // namespace penstock::cuda
