// Pattern: a regular expression of a tokenizer.json, on PCRE2 with its compiler to machine code.
//
// Files mean Oniguruma's expressions. The two differ in some corners, so a pattern is translated: \s becomes Unicode's
// White_Space, and what would mean something else here is refused by name: \w, \b, \h, . and anchors, scripts, set operations
// in classes, possessive counts ({1,3}+), back-references, names, flags but (?i:.
//
// Thread safety: const methods may be called from any thread, each with a Matcher of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace penstock {

class Pattern {
 public:
  // What a match needs while it is found. Thread-compatible.
  class Matcher {
   public:
    Matcher();
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

   private:
    friend class Pattern;
    pcre2_real_match_data_8* data_;
    pcre2_real_match_context_8* context_;
    pcre2_real_jit_stack_8* stack_;
  };

  struct Match {
    size_t begin = 0;
    size_t end = 0;  // begin == end: there is none
  };

  // Errors: Unimplemented (a construct, by name), InvalidArgument (no expression, or it matches the empty text),
  // OutOfRange (longer than kPatternBytesMax).
  static absl::StatusOr<Pattern> Compile(absl::string_view expression);

  // The first match in `text` at or after `start`, which sees what is before. REQUIRES: text is UTF-8, start <= its size
  // and where a character begins. Errors: ResourceExhausted (more than kMatchStepsMax steps).
  absl::StatusOr<Match> Find(absl::string_view text, size_t start, Matcher& matcher) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::string expression_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  bool compiled_ = false;  // to machine code
};

}  // namespace penstock
