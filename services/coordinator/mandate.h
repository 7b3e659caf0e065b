// Mandate: the right of this coordinator to act for the cluster, where others could take its place. Code that
// performs effects or answers asks whether it still holds.
#pragma once

#include <string>

namespace penstock {

// Thread safety: all methods may be called from any thread.
class Mandate {
 public:
  virtual ~Mandate() = default;

  // Once it does not hold, it never does again.
  virtual bool Holds() = 0;
  // Another coordinator leads, as the state says. It holds no longer.
  virtual void Lose(const std::string& why) = 0;
};

}  // namespace penstock
