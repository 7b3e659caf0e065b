#include "base/glob.h"

#include <cstddef>

namespace penstock {

bool MatchesGlob(absl::string_view pattern, absl::string_view text) {
  size_t p = 0, t = 0;
  // Behind the last star, and where the text that it does not stand for begins. A later star makes earlier ones final.
  size_t behind_star = absl::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      behind_star = ++p;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (behind_star != absl::string_view::npos) {
      p = behind_star;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace penstock
