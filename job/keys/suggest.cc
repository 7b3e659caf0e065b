#include "job/keys/suggest.h"

#include <algorithm>
#include <utility>

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

namespace {

// How many characters to insert, remove or replace so that the pattern matches.
int DistanceToMatch(absl::string_view pattern, absl::string_view name) {
  std::vector<int> last(name.size() + 1), row(name.size() + 1);  // by prefix of the name
  for (size_t j = 0; j <= name.size(); ++j) last[j] = static_cast<int>(j);
  for (const char c : pattern) {
    const bool is_star = c == '*';
    row[0] = last[0] + (is_star ? 0 : 1);
    for (size_t j = 1; j <= name.size(); ++j) {
      const bool equal = c == '?' || c == name[j - 1];
      row[j] = is_star ? std::min(last[j], row[j - 1])
                       : std::min({last[j - 1] + (equal ? 0 : 1), last[j] + 1, row[j - 1] + 1});
    }
    last.swap(row);
  }
  return last[name.size()];
}

}  // namespace

std::vector<std::string> NearestNames(absl::string_view pattern, std::vector<std::string> names) {
  constexpr size_t kPatternCharactersMax = 128, kNames = 3;
  std::vector<std::pair<int, size_t>> by_distance;
  for (size_t i = 0; i < names.size(); ++i) {
    by_distance.emplace_back(DistanceToMatch(pattern.substr(0, kPatternCharactersMax), names[i]),
                             i);
  }
  std::sort(by_distance.begin(), by_distance.end());
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(kNames, names.size()); ++i) {
    nearest.push_back(std::move(names[by_distance[i].second]));
  }
  return nearest;
}

}  // namespace penstock
