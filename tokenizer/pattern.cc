#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pattern.h"

#include <pcre2.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenizer/limits.h"

namespace penstock {
namespace {

constexpr char kWhiteSpaceMembers[] = R"(\x{9}-\x{d}\x{85}\p{Z})";
constexpr size_t kMachineStackBytesMax = 1 << 20;

// Writes an expression of Oniguruma as one of PCRE2 that means the same.
class Translation {
 public:
  explicit Translation(absl::string_view expression) : rest_(expression) {}

  absl::StatusOr<std::string> Run() {
    while (!rest_.empty()) PENSTOCK_RETURN_IF_ERROR(Item());
    return std::move(result_);
  }

 private:
  static absl::Status Refuse(absl::string_view what) {
    return absl::UnimplementedError(absl::StrCat(
        "the expression has ", what,
        ", which is not implemented here; known are letters, classes, \\p{..} of general "
        "categories, \\s, \\S, \\d, groups, (?i:, look-ahead and look-behind, and counts"));
  }

  void Copy(size_t bytes) {
    result_.append(rest_.data(), bytes);
    rest_.remove_prefix(bytes);
  }

  absl::Status Item() {
    switch (rest_.front()) {
      case '\\':
        return Escape(/*in_class=*/false);
      case '[':
        return Class();
      case '(':
        return Group();
      case '{':
        return Count();
      case '.':
      case '^':
      case '$':
        return Refuse(absl::StrCat("\"", rest_.substr(0, 1), "\""));
      default:
        Copy(1);
        return absl::OkStatus();
    }
  }

  absl::Status Group() {
    if (!absl::StartsWith(rest_, "(?")) {
      Copy(1);
      return absl::OkStatus();
    }
    for (const absl::string_view opening : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!absl::StartsWith(rest_, opening)) continue;
      Copy(opening.size());
      return absl::OkStatus();
    }
    return Refuse(absl::StrCat("a group \"", rest_.substr(0, 4), "\""));
  }

  absl::Status Count() {
    const size_t end = rest_.find('}');
    if (end == absl::string_view::npos || end < 2 ||
        rest_.substr(1, end - 1).find_first_not_of("0123456789,") != absl::string_view::npos ||
        rest_[1] == ',') {
      return Refuse("a \"{\" that begins no count");
    }
    if (end + 1 < rest_.size() && (rest_[end + 1] == '+' || rest_[end + 1] == '?')) {
      return Refuse(absl::StrCat("\"", rest_.substr(0, end + 2), "\""));
    }
    Copy(end + 1);
    return absl::OkStatus();
  }

  absl::Status Escape(bool in_class) {
    if (rest_.size() < 2) return absl::InvalidArgumentError("the expression ends with \"\\\"");
    const char name = rest_[1];
    if (name == 'p' || name == 'P') return Property();
    if (name == 's' || (name == 'S' && !in_class)) {
      rest_.remove_prefix(2);
      if (in_class) {
        result_ += kWhiteSpaceMembers;
      } else {
        absl::StrAppend(&result_, name == 's' ? "[" : "[^", kWhiteSpaceMembers, "]");
      }
      return absl::OkStatus();
    }
    if (name == 'd' || name == 'r' || name == 'n' || name == 't' || absl::ascii_ispunct(name)) {
      Copy(2);
      return absl::OkStatus();
    }
    return Refuse(absl::StrCat("\"\\", absl::string_view(&name, absl::ascii_isprint(name) ? 1 : 0),
                               in_class ? "\" in a class" : "\""));
  }

  absl::Status Property() {
    const size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == absl::string_view::npos) {
      return Refuse(absl::StrCat("\"", rest_.substr(0, 3), "\""));
    }
    const absl::string_view name = rest_.substr(3, end - 3);
    const bool is_category =
        !name.empty() && name.size() <= 2 &&
        absl::string_view("LMNPSZC").find(name[0]) != absl::string_view::npos &&
        (name.size() == 1 || absl::ascii_islower(name[1]));
    if (!is_category) return Refuse(absl::StrCat("the property \"", name, "\""));
    Copy(end + 1);
    return absl::OkStatus();
  }

  absl::Status Class() {
    Copy(1);
    if (absl::StartsWith(rest_, "^")) Copy(1);
    if (absl::StartsWith(rest_, "]")) return Refuse("a class that begins with \"]\"");
    while (!rest_.empty() && rest_.front() != ']') {
      if (rest_.front() == '[') return Refuse("\"[\" in a class");
      if (absl::StartsWith(rest_, "&&")) return Refuse("\"&&\" in a class");
      if (rest_.front() == '\\') {
        PENSTOCK_RETURN_IF_ERROR(Escape(/*in_class=*/true));
      } else {
        Copy(1);
      }
    }
    if (rest_.empty())
      return absl::InvalidArgumentError("the expression has a class without \"]\"");
    Copy(1);
    return absl::OkStatus();
  }

  absl::string_view rest_;
  std::string result_;
};

std::string MessageOf(int code) {
  PCRE2_UCHAR message[256];
  const int bytes = pcre2_get_error_message(code, message, sizeof(message));
  return bytes < 0 ? absl::StrCat("error ", code)
                   : std::string(reinterpret_cast<const char*>(message), bytes);
}

}  // namespace

Pattern::Matcher::Matcher()
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(32 << 10, kMachineStackBytesMax, nullptr)) {
  PENSTOCK_CHECK(data_ != nullptr && context_ != nullptr);
  pcre2_set_match_limit(context_, kMatchStepsMax);
  pcre2_jit_stack_assign(context_, nullptr, stack_);
}

Pattern::Matcher::~Matcher() {
  pcre2_match_data_free(data_);
  pcre2_match_context_free(context_);
  pcre2_jit_stack_free(stack_);
}

void Pattern::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<Pattern> Pattern::Compile(absl::string_view expression) {
  if (expression.size() > kPatternBytesMax) {
    return absl::OutOfRangeError(absl::StrCat("the expression has ", expression.size(), " bytes; ",
                                              kPatternBytesMax, " are allowed"));
  }
  if (FindInvalidUtf8(expression) != absl::string_view::npos) {
    return absl::InvalidArgumentError("the expression is not UTF-8");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string translated, Translation(expression).Run());
  int error = 0;
  PCRE2_SIZE offset = 0;
  Pattern pattern;
  pattern.expression_ = std::string(expression);
  pattern.code_.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, nullptr));
  if (pattern.code_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", expression, "\" is no expression: ", MessageOf(error)));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(pattern.code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", expression, "\" matches the empty text, so that it cuts nowhere"));
  }
  // Where the machine allows no code to be written, it is interpreted.
  pattern.compiled_ = pcre2_jit_compile(pattern.code_.get(), PCRE2_JIT_COMPLETE) == 0;
  return pattern;
}

absl::StatusOr<Pattern::Match> Pattern::Find(absl::string_view text, size_t start,
                                             Matcher& matcher) const {
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data());
  const int found = compiled_ ? pcre2_jit_match(code_.get(), subject, text.size(), start,
                                                PCRE2_NO_UTF_CHECK, matcher.data_, matcher.context_)
                              : pcre2_match(code_.get(), subject, text.size(), start,
                                            PCRE2_NO_UTF_CHECK, matcher.data_, matcher.context_);
  if (found == PCRE2_ERROR_NOMATCH) return Match{text.size(), text.size()};
  if (found < 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the expression \"", expression_, "\" gave up at byte ", start, " of a text of ",
        text.size(), " (", MessageOf(found), "); cut the text before that"));
  }
  const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(matcher.data_);
  return Match{bounds[0], bounds[1]};
}

}  // namespace penstock
