// Mutator: changes inputs as a fuzzer does, but the same in every run.
//
// A value; thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"

namespace penstock {

class Mutator {
 public:
  // `words`: what parsers look for, such as keys. Inputs grow to `bytes_max` bytes at most.
  Mutator(uint64_t seed, std::vector<std::string> words, size_t bytes_max)
      : random_(seed, /*purpose=*/77), words_(std::move(words)), bytes_max_(bytes_max) {}

  // One of `inputs` with one to four changes: bits, bytes, numbers, words, pieces of itself and of others.
  // REQUIRES: there is an input.
  std::string Mutate(const std::vector<std::string>& inputs);

 private:
  void Change(const std::vector<std::string>& inputs, std::string& text);
  // Somewhere in the text, its end among it.
  size_t Place(const std::string& text) { return random_.Below(text.size() + 1); }
  const std::string& AnyOf(const std::vector<std::string>& texts) {
    return texts[random_.Below(texts.size())];
  }

  RandomStream random_;
  const std::vector<std::string> words_;
  const size_t bytes_max_;
};

}  // namespace penstock
