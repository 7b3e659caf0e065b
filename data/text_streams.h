// TextStreams: a text read as parallel streams, so that sample r of each step goes on where sample r of the step before
// ended.
//
// As many streams as a step has samples, each an equal part of the text and read window by window: of S streams, sample i
// is row i % S of step i / S, and step k reads window k % W of each stream. W windows are an epoch; what the text has
// beyond them is left out. In the first window of an epoch all sequences start afresh.
//
// A pure function of the sample. A value; immutable.
#pragma once

#include <cstdint>

namespace penstock {

class TextStreams {
 public:
  // `tokens`: those that have a next one, the target of the last. REQUIRES: all are above 0.
  TextStreams(int64_t tokens, int64_t streams, int64_t window)
      : streams_(streams),
        window_(window),
        stream_tokens_(tokens / streams),
        windows_(stream_tokens_ / window) {}

  // W; 0: the text is too short.
  int64_t windows() const { return windows_; }
  // These REQUIRE: windows() > 0.
  int64_t OffsetOf(int64_t sample) const {
    return sample % streams_ * stream_tokens_ + WindowOf(sample) * window_;
  }
  bool StartsAfresh(int64_t sample) const { return WindowOf(sample) == 0; }

 private:
  int64_t WindowOf(int64_t sample) const { return sample / streams_ % windows_; }

  int64_t streams_;
  int64_t window_;
  int64_t stream_tokens_;
  int64_t windows_;
};

}  // namespace penstock
