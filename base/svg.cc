#include "base/svg.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace penstock {

std::string SvgText(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string SvgNumber(double value, int decimals) {
  std::string text = absl::StrFormat("%.*f", decimals, value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

}  // namespace penstock
