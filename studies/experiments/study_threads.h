// RunOnThreads: numbered calls on several threads, while the caller's thread looks on.
#pragma once

#include <cstdint>
#include <functional>

namespace penstock {

// Calls `body` with every number below `count`, from up to `threads` threads, and returns when all calls are
// done. Meanwhile `look` is called in the caller's thread, about ten times a second; once it returns false no
// more calls begin. REQUIRES: threads > 0.
void RunOnThreads(int threads, int64_t count, const std::function<void(int64_t)>& body,
                  const std::function<bool()>& look);

}  // namespace penstock
