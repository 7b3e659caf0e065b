// What fuzz targets are made of. NAME_fuzz.cc has one target:
//
//   PENSTOCK_FUZZ_TARGET(frame) {
//     FuzzBytes input(data, size);
//     ...
//     return 0;
//   }
//
// A target hands the input to a parser, and ends the program (PENSTOCK_CHECK) where something does not hold: what was taken
// is within the documented limits, is written, and is read back as the same. It says FuzzAccepted() for every
// input that the parser takes. It keeps nothing from one input to the next, so that a failure is the input alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "base/check.h"

// The function that libFuzzer calls; in fuzz_corpus_test, which has all targets, each has a name of its own.
#if defined(PENSTOCK_LIBFUZZER)
#define PENSTOCK_FUZZ_TARGET(name) \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
#define PENSTOCK_FUZZ_TARGET(name) extern "C" int Fuzz_##name(const uint8_t* data, size_t size)
#endif

namespace penstock {

// Counts the inputs that were taken. One thread.
inline int64_t fuzz_accepted = 0;
inline void FuzzAccepted() { ++fuzz_accepted; }

// Reads an input front to back; behind its end everything is zero or empty. Refers to the input's bytes.
class FuzzBytes {
 public:
  FuzzBytes(const uint8_t* data, size_t size)
      : rest_(size == 0 ? "" : reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  absl::string_view rest() const { return rest_; }

  // An integer of the machine's byte order.
  template <typename Integer>
  Integer Take() {
    Integer value = 0;
    const absl::string_view bytes = TakeText(sizeof(value));
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  // As many of `count` bytes as there are.
  absl::string_view TakeText(size_t count) {
    const absl::string_view text = rest_.substr(0, count);
    rest_.remove_prefix(text.size());
    return text;
  }
  // The text up to `end`, which goes, too, or all that is left.
  absl::string_view TakeUntil(char end) {
    const absl::string_view text = rest_.substr(0, rest_.find(end));
    rest_.remove_prefix(std::min(text.size() + 1, rest_.size()));
    return text;
  }

 private:
  absl::string_view rest_;
};

}  // namespace penstock
