// Numbers as the shortest text that reads back as the same number.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace penstock {

template <typename Number>
std::string ExactText(Number value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace penstock
