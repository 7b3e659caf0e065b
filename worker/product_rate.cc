#include "worker/product_rate.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "compute/stage.h"
#include "model/graph_builder.h"

namespace penstock {
namespace {

// Rows and columns. The larger size is for devices that do the smaller one so fast that the call is what takes time.
constexpr int64_t kSize = 512;
constexpr int64_t kLargeSize = 4096;
constexpr int64_t kShortNs = 500'000;
constexpr int kProducts = 5;  // the first prepares kernels

struct Measured {
  double flops_per_second = 0;
  int64_t ns = 0;
};

absl::StatusOr<ModelGraph> ProductModel(int64_t size) {
  GraphBuilder builder("product");
  builder.AddPort({"x", {DType::kF32, {size}}});
  builder.AddPort({"y", {DType::kF32, {size}}});
  builder.BeginLayer("product");
  builder.Add({.op = "linear",
               .attributes = {{"outputs", size}, {"bias", false}, {"init", std::string("uniform")}},
               .inputs = {"x"}});
  builder.BeginLayer("loss");
  builder.Add({.op = "mse", .inputs = {"product", "y"}});
  return std::move(builder).Build();
}

absl::StatusOr<Measured> MeasureSize(Backend& backend, Precision precision, int64_t size,
                                     Clock& clock) {
  PENSTOCK_ASSIGN_OR_RETURN(const ModelGraph model, ProductModel(size));
  StageOptions options = {.layers = {.first = 0, .count = 1},
                          .ends = StageEnds::kLayers,
                          .samples = size,
                          .precision = precision,
                          .updates = false};
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Stage> stage,
                            Stage::Create(backend, model, options));
  stage->InitializeWeights();
  const std::vector<float> ones(size * size, 1.0f);
  const auto* const bytes = reinterpret_cast<const std::byte*>(ones.data());
  PENSTOCK_ASSIGN_OR_RETURN(
      const Tensor x,
      stage->PortToDevice(0, absl::MakeConstSpan(bytes, ones.size() * sizeof(float))));
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kProducts; ++i) {
    PENSTOCK_RETURN_IF_ERROR(backend.Synchronize());
    const int64_t start_ns = clock.MonotonicNs();
    PENSTOCK_RETURN_IF_ERROR(stage->Evaluate(/*version=*/0, Tensor(), {&x, 1}).status());
    PENSTOCK_RETURN_IF_ERROR(backend.Synchronize());
    best_ns = std::min(best_ns, std::max<int64_t>(1, clock.MonotonicNs() - start_ns));
  }
  const double flops =
      static_cast<double>(size) * EstimateCost(model, model.layers.front()).forward_flops;
  return Measured{.flops_per_second = flops * 1e9 / static_cast<double>(best_ns), .ns = best_ns};
}

}  // namespace

absl::StatusOr<double> MeasureProductRate(Backend& backend, Precision precision, Clock& clock) {
  PENSTOCK_ASSIGN_OR_RETURN(Measured measured, MeasureSize(backend, precision, kSize, clock));
  if (measured.ns < kShortNs) {
    PENSTOCK_ASSIGN_OR_RETURN(measured, MeasureSize(backend, precision, kLargeSize, clock));
  }
  return measured.flops_per_second;
}

absl::StatusOr<double> MeasureProductRate(Backend& backend, Precision precision, int64_t size,
                                          Clock& clock) {
  PENSTOCK_ASSIGN_OR_RETURN(const Measured measured, MeasureSize(backend, precision, size, clock));
  return measured.flops_per_second;
}

}  // namespace penstock
