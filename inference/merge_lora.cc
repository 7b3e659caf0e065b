#include "inference/merge_lora.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::StatusOr<NamedArray*> Find(std::vector<NamedArray>& arrays, const std::string& name) {
  const auto found = std::find_if(arrays.begin(), arrays.end(),
                                  [&](const NamedArray& array) { return array.name == name; });
  if (found != arrays.end()) return &*found;
  return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing"));
}

absl::Status CheckShape(const NamedArray& array, const std::vector<int64_t>& expected) {
  if (array.shape == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor ", array.name, " has shape [",
                                                 absl::StrJoin(array.shape, ", "), "], expected [",
                                                 absl::StrJoin(expected, ", "), "]"));
}

// W[o, i] += scale sum_r B[o, r] A[r, i].
void AddProduct(const LoraAdapter& adapter, const NamedArray& a, const NamedArray& b,
                NamedArray& weight) {
  const int64_t rank = a.shape[0], inputs = a.shape[1], outputs = b.shape[0];
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t i = 0; i < inputs; ++i) {
      double sum = 0.0;
      for (int64_t r = 0; r < rank; ++r) {
        sum += static_cast<double>(b.values[o * rank + r]) *
               static_cast<double>(a.values[r * inputs + i]);
      }
      float& w = weight.values[adapter.outputs_first ? o * inputs + i : i * outputs + o];
      w = static_cast<float>(static_cast<double>(w) + adapter.scale * sum);
    }
  }
}

absl::Status Merge(const LoraAdapter& adapter, std::vector<NamedArray>& weights) {
  const std::string prefix = adapter.map.empty() ? "" : adapter.map + ".";
  PENSTOCK_ASSIGN_OR_RETURN(const NamedArray* const a, Find(weights, prefix + kLoraA));
  PENSTOCK_ASSIGN_OR_RETURN(const NamedArray* const b, Find(weights, prefix + kLoraB));
  PENSTOCK_ASSIGN_OR_RETURN(NamedArray* const weight, Find(weights, prefix + "weight"));
  if (weight->shape.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", weight->name, " has ", weight->shape.size(), " dimensions, expected 2"));
  }
  const int64_t outputs = weight->shape[adapter.outputs_first ? 0 : 1];
  const int64_t inputs = weight->shape[adapter.outputs_first ? 1 : 0];
  const int64_t rank = a->shape.empty() ? 0 : a->shape.front();
  PENSTOCK_RETURN_IF_ERROR(CheckShape(*a, {rank, inputs}));
  PENSTOCK_RETURN_IF_ERROR(CheckShape(*b, {outputs, rank}));
  AddProduct(adapter, *a, *b, *weight);
  std::erase_if(weights, [&](const NamedArray& array) {
    return array.name == prefix + kLoraA || array.name == prefix + kLoraB;
  });
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<NamedArray>> MergeLora(absl::Span<const LoraAdapter> adapters,
                                                  std::vector<NamedArray> weights) {
  for (const LoraAdapter& adapter : adapters) {
    PENSTOCK_RETURN_IF_ERROR(Merge(adapter, weights));
  }
  return weights;
}

}  // namespace penstock
