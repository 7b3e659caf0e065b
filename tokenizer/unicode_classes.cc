#include "tokenizer/unicode_classes.h"

#include <utf8proc.h>

#include "absl/strings/ascii.h"

namespace penstock {
namespace {

utf8proc_category_t CategoryOf(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

}  // namespace

bool IsControl(char32_t code) {
  if (code < 0x80)
    return (code < 0x20 || code == 0x7F) && code != '\t' && code != '\n' && code != '\r';
  const utf8proc_category_t category = CategoryOf(code);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

bool IsNonspacingMark(char32_t code) {
  return code >= 0x300 && CategoryOf(code) == UTF8PROC_CATEGORY_MN;
}

bool IsPunctuation(char32_t code) {
  if (code < 0x80) return absl::ascii_ispunct(static_cast<unsigned char>(code));
  const utf8proc_category_t category = CategoryOf(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

char32_t LowerCaseOf(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

}  // namespace penstock
