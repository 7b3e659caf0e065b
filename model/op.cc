#include "model/op.h"

#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/ops/list.h"

namespace penstock {
namespace {

int64_t Elements(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

constexpr const Op* kOps[] = {
#define PENSTOCK_OP_ADDRESS(Name) &ops::k##Name,
    PENSTOCK_OPS(PENSTOCK_OP_ADDRESS)
#undef PENSTOCK_OP_ADDRESS
};

}  // namespace

int64_t ValueType::elements() const { return Elements(dims); }
int64_t ParameterSpec::size() const { return Elements(shape); }
int64_t BufferSpec::size() const { return Elements(shape); }

std::string ValueType::ToString() const {
  return absl::StrCat(Name(dtype), " [", absl::StrJoin(dims, ", "), "]");
}

absl::Span<const Op* const> AllOps() { return kOps; }

absl::StatusOr<const Op*> FindOp(absl::string_view name) {
  for (const Op* op : kOps) {
    if (op->name == name) return op;
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no op \"", name, "\"; expected one of ",
      absl::StrJoin(kOps, ", ",
                    [](std::string* out, const Op* op) { absl::StrAppend(out, op->name); })));
}

double ProductFlops(double rows, double inputs, double outputs) {
  return 2.0 * rows * inputs * outputs;
}

absl::Status ShapesDoNotFit(absl::Span<const ValueType> inputs, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(
      absl::StrJoin(inputs, " and ",
                    [](std::string* out, const ValueType& type) { out->append(type.ToString()); }),
      inputs.size() == 1 ? " does not fit: expected " : " do not fit: expected ", wanted));
}

}  // namespace penstock
