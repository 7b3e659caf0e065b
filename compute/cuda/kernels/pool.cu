// Poolings, and images with some of their pixels. Backward, each input gathers from the windows that see it, so that
// nothing is added atomically.
#include "compute/cuda/kernels/for_each.cuh"
#include "compute/cuda/kernels/images.cuh"

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
  const int64_t first = InputOf(axis, i, 0);
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

// Both sides of an op whose outputs see windows of the inputs.
struct Windows {
  ImageAxis height, width;
  ImageSize x, y;

  Windows(const ImageAxis& h, const ImageAxis& w, int64_t inputs, int64_t outputs)
      : height(h), width(w), x{h.inputs, w.inputs, inputs}, y{h.outputs, w.outputs, outputs} {}
};

Windows Pooling(const ImageAxis& height, const ImageAxis& width, int64_t channels) {
  return {height, width, channels, channels};
}

// body(place) for the pixels of these rows and columns, in the sample and the channel of `at`.
template <typename Body>
__device__ void ForPixels(const Range& rows, const Range& columns, const ImagePlace& at,
                          Body body) {
  for (int64_t row = rows.first; row < rows.end; ++row) {
    for (int64_t column = columns.first; column < columns.end; ++column) {
      body(ImagePlace{at.sample, row, column, at.channel});
    }
  }
}

// body(input) for the inputs inside the image that an output sees.
template <typename Body>
__device__ void ForSeen(const Windows& p, const ImagePlace& output, Body body) {
  ForPixels(Within(Seen(p.height, output.row), p.height),
            Within(Seen(p.width, output.column), p.width), output, body);
}

// body(output) for the outputs that see an input.
template <typename Body>
__device__ void ForSeers(const Windows& p, const ImagePlace& input, Body body) {
  ForPixels(Seers(p.height, input.row), Seers(p.width, input.column), input, body);
}

// Which element of the output's window an input is.
__device__ inline int32_t ElementOfWindow(const Windows& p, const ImagePlace& output,
                                          const ImagePlace& input) {
  const int64_t down = input.row - Seen(p.height, output.row).first;
  const int64_t across = input.column - Seen(p.width, output.column).first;
  return static_cast<int32_t>(down * p.width.kernel + across);
}

// Of an output's window, with what lies outside.
__device__ inline float WindowSize(const Windows& p, const ImagePlace& output) {
  return static_cast<float>(SizeOf(Seen(p.height, output.row)) *
                            SizeOf(Seen(p.width, output.column)));
}

}  // namespace

void MaxPoolForward(cudaStream_t stream, int64_t samples, int64_t channels, const ImageAxis& height,
                    const ImageAxis& width, const float* x, float* y, int32_t* places) {
  const Windows p = Pooling(height, width, channels);
  ForEach(stream, samples * p.y.elements(), [=] __device__(int64_t at) {
    const ImagePlace output = PlaceOf(p.y, at);
    float largest = -INFINITY;
    int32_t place = -1;
    ForSeen(p, output, [&](const ImagePlace& input) {
      const float value = x[ElementOf(p.x, input)];
      if (place >= 0 && !(value > largest) && value == value) return;
      largest = value;
      place = ElementOfWindow(p, output, input);
    });
    y[at] = largest;
    places[at] = place;
  });
}

void MaxPoolBackward(cudaStream_t stream, int64_t samples, int64_t channels,
                     const ImageAxis& height, const ImageAxis& width, const float* dy,
                     const int32_t* places, float* dx) {
  const Windows p = Pooling(height, width, channels);
  ForEach(stream, samples * p.x.elements(), [=] __device__(int64_t at) {
    const ImagePlace input = PlaceOf(p.x, at);
    float sum = 0.0f;
    ForSeers(p, input, [&](const ImagePlace& output) {
      const int64_t from = ElementOf(p.y, output);
      if (places[from] == ElementOfWindow(p, output, input)) sum += dy[from];
    });
    dx[at] = sum;
  });
}

void AvgPoolForward(cudaStream_t stream, int64_t samples, int64_t channels, const ImageAxis& height,
                    const ImageAxis& width, const float* x, float* y) {
  const Windows p = Pooling(height, width, channels);
  ForEach(stream, samples * p.y.elements(), [=] __device__(int64_t at) {
    const ImagePlace output = PlaceOf(p.y, at);
    float sum = 0.0f;
    ForSeen(p, output, [&](const ImagePlace& input) { sum += x[ElementOf(p.x, input)]; });
    y[at] = sum / WindowSize(p, output);
  });
}

void AvgPoolBackward(cudaStream_t stream, int64_t samples, int64_t channels,
                     const ImageAxis& height, const ImageAxis& width, const float* dy, float* dx) {
  const Windows p = Pooling(height, width, channels);
  ForEach(stream, samples * p.x.elements(), [=] __device__(int64_t at) {
    float sum = 0.0f;
    ForSeers(p, PlaceOf(p.x, at), [&](const ImagePlace& output) {
      sum += dy[ElementOf(p.y, output)] / WindowSize(p, output);
    });
    dx[at] = sum;
  });
}

void SubsampleForward(cudaStream_t stream, int64_t samples, int64_t inputs, int64_t outputs,
                      const ImageAxis& height, const ImageAxis& width, const float* x, float* y) {
  const Windows p(height, width, inputs, outputs);
  ForEach(stream, samples * p.y.elements(), [=] __device__(int64_t at) {
    ImagePlace place = PlaceOf(p.y, at);
    place.row = InputOf(p.height, place.row, 0);
    place.column = InputOf(p.width, place.column, 0);
    y[at] = place.channel < p.x.channels ? x[ElementOf(p.x, place)] : 0.0f;
  });
}

void SubsampleBackward(cudaStream_t stream, int64_t samples, int64_t inputs, int64_t outputs,
                       const ImageAxis& height, const ImageAxis& width, const float* dy,
                       float* dx) {
  const Windows p(height, width, inputs, outputs);
  ForEach(stream, samples * p.x.elements(), [=] __device__(int64_t at) {
    ImagePlace place = PlaceOf(p.x, at);
    place.row = OutputOf(p.height, place.row, 0);
    place.column = OutputOf(p.width, place.column, 0);
    dx[at] = place.row >= 0 && place.column >= 0 ? dy[ElementOf(p.y, place)] : 0.0f;
  });
}

}  // namespace penstock::cuda
