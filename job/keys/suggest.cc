#include "job/keys/suggest.h"

#include <algorithm>

namespace penstock {

int EditDistance(absl::string_view a, absl::string_view b) {
  // Three rows of the table of distances between prefixes: two back, one back, and the current one.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    last[j] = static_cast<int>(j);
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string NearestName(absl::string_view typed, const std::vector<std::string>& names) {
  constexpr size_t kTypedCharactersMax = 64;  // longer ones are no slips of the finger
  if (typed.size() > kTypedCharactersMax) {
    return "";
  }
  std::string nearest;
  int nearest_distance = std::min<int>(3, static_cast<int>(typed.size() + 2) / 3) + 1;
  for (const std::string& name : names) {
    const int distance = EditDistance(typed, name);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace penstock
