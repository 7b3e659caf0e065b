#include "compute/tensor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/check.h"

namespace penstock {

Shape::Shape(std::initializer_list<int64_t> sizes) : rank(static_cast<int>(sizes.size())) {
  PENSTOCK_CHECK(sizes.size() <= dims.size());
  std::copy(sizes.begin(), sizes.end(), dims.begin());
}

int64_t Shape::elements() const {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    count *= dims[i];
  }
  return count;
}

std::string Shape::ToString() const {
  return absl::StrCat("[", absl::StrJoin(absl::MakeConstSpan(dims.data(), rank), ", "), "]");
}

}  // namespace penstock
