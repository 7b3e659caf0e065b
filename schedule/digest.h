// The digest by which coordinator and workers make sure that they will run the same schedule.
//
// SHA-256 over the version of lowering and, for each range between two cuts, the compressed text
// form (text.h): actions, topology, weight policy and the range, whose ends are the cuts. Of ranges of
// one length, which differ by a shift alone, the first counts with its text and the others with their
// place, so the cost follows the size of the programs and neither the length nor the number of ranges.
#pragma once

#include <string>

#include "base/sha256.h"
#include "schedule/schedule.h"

namespace penstock {

// Thread-compatible.
class ScheduleDigest {
 public:
  ScheduleDigest();

  // Adds the next range, in the order in which they are run.
  void Add(const Schedule& schedule);
  // Adds a text that must be the same on both sides.
  void AddText(const std::string& text) { sha256_.Update(text); }
  // Adds a range whose schedule, called `name`, is that of an added range of this length, shifted.
  void AddAgain(absl::string_view name, MicrobatchRange range);

  // 64 hexadecimal digits. REQUIRES: called once.
  std::string Hex() { return sha256_.HexDigest(); }

 private:
  Sha256 sha256_;
};

// The digest of one range alone.
std::string DigestOf(const Schedule& schedule);

}  // namespace penstock
