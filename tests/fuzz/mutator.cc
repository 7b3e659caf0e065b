#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace penstock {
namespace {

// At the ends of what numbers are stored in, and of what parsers multiply and add.
constexpr absl::string_view kNumbers[] = {"0",
                                          "-1",
                                          "1",
                                          "2147483647",
                                          "2147483648",
                                          "4294967296",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "-9223372036854775808",
                                          "18446744073709551615",
                                          "1e308",
                                          "1e-308",
                                          "0.5",
                                          "nan",
                                          "inf"};
constexpr unsigned char kBytes[] = {0x00, 0x01, 0x7F, 0x80, 0xC0, 0xFF, '\n', '"'};

// Where the digits that begin at `from`, or behind it, lie: begin and end, equal if there are none.
std::pair<size_t, size_t> DigitsFrom(const std::string& text, size_t from) {
  size_t begin = from;
  while (begin < text.size() && !absl::ascii_isdigit(static_cast<unsigned char>(text[begin]))) {
    ++begin;
  }
  size_t end = begin;
  while (end < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[end]))) ++end;
  return {begin, end};
}

}  // namespace

std::string Mutator::Mutate(const std::vector<std::string>& inputs) {
  std::string text = AnyOf(inputs);
  for (uint64_t changes = 1 + random_.Below(4); changes > 0; --changes) Change(inputs, text);
  if (text.size() > bytes_max_) text.resize(bytes_max_);
  return text;
}

void Mutator::Change(const std::vector<std::string>& inputs, std::string& text) {
  const size_t at = Place(text);
  const size_t length = std::min<size_t>(1 + random_.Below(16), text.size() - at);
  switch (random_.Below(9)) {
    case 0:  // a bit
      if (length > 0) text[at] = static_cast<char>(text[at] ^ (1 << random_.Below(8)));
      return;
    case 1:  // a byte
      if (length > 0) text[at] = static_cast<char>(kBytes[random_.Below(std::size(kBytes))]);
      return;
    case 2:  // any byte
      text.insert(at, 1, static_cast<char>(random_.Below(256)));
      return;
    case 3:
      text.erase(at, length);
      return;
    case 4:  // a piece twice
      text.insert(Place(text), text.substr(at, length));
      return;
    case 5: {  // a number
      const auto [begin, end] = DigitsFrom(text, at);
      text.replace(begin, end - begin, std::string(kNumbers[random_.Below(std::size(kNumbers))]));
      return;
    }
    case 6:  // a word
      if (!words_.empty()) text.insert(at, AnyOf(words_));
      return;
    case 7: {  // a piece of another input
      const std::string& other = AnyOf(inputs);
      text.insert(at, other.substr(Place(other), random_.Below(64)));
      return;
    }
    default:  // the end
      text.resize(at);
  }
}

}  // namespace penstock
