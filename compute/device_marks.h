// DeviceMarks: moments in a device's own order of work, and names for what it works on.
//
// A device that goes on working when a call returns cannot be timed with the host's clock. So the host
// puts marks between the calls and reads later, without waiting, when the device passed them.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>

namespace penstock {

// The work that a device does in order. Copies to and from the host run beside the computation.
enum class DeviceStream : uint8_t { kCompute, kCopyIn, kCopyOut };

class DeviceMarks {
 public:
  virtual ~DeviceMarks() = default;

  // Puts mark number `mark` behind all that was asked of `stream` so far; where it was before is
  // forgotten. An error of the device shows in the back-end's next call that returns a status.
  virtual void Put(int mark, DeviceStream stream) = 0;
  // Returns whether the device has passed the mark. Does not wait.
  virtual bool Passed(int mark) = 0;
  // Time between two marks. REQUIRES: both were passed.
  virtual int64_t ElapsedNs(int from, int to) = 0;

  // For profilers: the device's work between the two calls belongs to `name`, which need not live on.
  virtual void BeginRange(const char* name) = 0;
  virtual void EndRange() = 0;
};

}  // namespace penstock
