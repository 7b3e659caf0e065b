#include "studies/theory/libsvm.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

struct Entry {
  int64_t row;
  int64_t column;
  double value;
};

class Parser {
 public:
  Parser(absl::string_view text, absl::string_view name) : text_(text), name_(name) {}

  absl::Status Parse() {
    while (!text_.empty()) {
      ++line_;
      const size_t end = text_.find('\n');
      rest_ = text_.substr(0, end);
      text_.remove_prefix(end == absl::string_view::npos ? text_.size() : end + 1);
      line_begin_ = rest_.data();
      rest_ = absl::StripTrailingAsciiWhitespace(rest_);
      if (!rest_.empty()) PENSTOCK_RETURN_IF_ERROR(ParseLine());
    }
    if (targets.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name_, ": has no rows"));
    }
    return absl::OkStatus();
  }

  std::vector<double> targets;
  std::vector<Entry> entries;
  int64_t width = 0;

 private:
  absl::Status ParseLine() {
    const absl::string_view label = NextWord();
    double value = 0.0;
    if (!absl::SimpleAtod(label, &value) || (value != 0.0 && value != 1.0 && value != -1.0)) {
      return Error(label, "a label of 0, 1 or -1");
    }
    targets.push_back(value == 1.0 ? 1.0 : 0.0);
    int64_t last = 0;
    while (!rest_.empty()) PENSTOCK_RETURN_IF_ERROR(ParsePair(NextWord(), last));
    const auto values = static_cast<int64_t>(targets.size()) * width;
    if (values > kLibsvmValuesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ":", line_, ": more than ", kLibsvmValuesMax, " values (",
                       targets.size(), " rows of ", width, "); take fewer rows or columns"));
    }
    return absl::OkStatus();
  }

  absl::Status ParsePair(absl::string_view word, int64_t& last) {
    const size_t colon = word.find(':');
    if (colon == absl::string_view::npos) return Error(word, "INDEX:VALUE");
    const absl::string_view index_word = word.substr(0, colon);
    const absl::string_view value_word = word.substr(colon + 1);
    int64_t index = 0;
    if (!absl::SimpleAtoi(index_word, &index) || index <= last || index > kLibsvmIndexMax) {
      return Error(index_word, absl::StrCat("an index from ", last + 1, " to ", kLibsvmIndexMax));
    }
    double value = 0.0;
    if (!absl::SimpleAtod(value_word, &value) || !std::isfinite(value)) {
      return Error(value_word, "a finite number");
    }
    last = index;
    width = std::max(width, index);
    entries.push_back({static_cast<int64_t>(targets.size()) - 1, index - 1, value});
    return absl::OkStatus();
  }

  // Returns the next word of the line; the rest starts with the word after it.
  absl::string_view NextWord() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    const size_t end = std::min(rest_.find_first_of(" \t"), rest_.size());
    const absl::string_view word = rest_.substr(0, end);
    rest_ = absl::StripLeadingAsciiWhitespace(rest_.substr(end));
    return word;
  }

  absl::Status Error(absl::string_view word, absl::string_view expected) const {
    constexpr size_t kShownMax = 40;
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ":", line_, ":", word.data() - line_begin_ + 1, ": expected ", expected,
                     ", got \"", absl::CHexEscape(word.substr(0, kShownMax)), "\""));
  }

  absl::string_view text_;
  const absl::string_view name_;
  absl::string_view rest_;
  const char* line_begin_ = nullptr;
  int64_t line_ = 0;
};

}  // namespace

absl::StatusOr<Problem> ParseLibsvm(absl::string_view text, absl::string_view name, double l2) {
  Parser parser(text, name);
  PENSTOCK_RETURN_IF_ERROR(parser.Parse());
  if (parser.width == 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": no row names a feature"));
  }
  Problem problem{.name = std::string(name),
                  .loss = Loss::kLogistic,
                  .features = Matrix(static_cast<int64_t>(parser.targets.size()), parser.width),
                  .targets = std::move(parser.targets),
                  .l2 = l2};
  for (const Entry& entry : parser.entries) {
    problem.features.At(entry.row, entry.column) = entry.value;
  }
  return problem;
}

}  // namespace penstock
