#include "base/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace penstock {
namespace {

int64_t PhysicalBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? pages * page_bytes : 0;
}

// A hierarchy of groups that limits memory.
struct Hierarchy {
  std::string mount;
  std::string group;  // this process's: "/a/b"
  std::string file;   // of a group, with its limit
};

std::vector<Hierarchy> HierarchiesOf(const std::string& root) {
  std::vector<Hierarchy> hierarchies;
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    // NUMBER:CONTROLLERS:PATH, of v2 without controllers.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      hierarchies.push_back({absl::StrCat(root, "/sys/fs/cgroup"), parts[2], "memory.max"});
    } else if (std::count(controllers.begin(), controllers.end(), "memory") > 0) {
      hierarchies.push_back(
          {absl::StrCat(root, "/sys/fs/cgroup/memory"), parts[2], "memory.limit_in_bytes"});
    }
  }
  return hierarchies;
}

}  // namespace

int64_t HostMemoryBytes(const std::string& root) {
  int64_t least = PhysicalBytes();
  for (Hierarchy& hierarchy : HierarchiesOf(root)) {
    // The groups around it limit it, too. Within a container its own group is often the root of what is mounted there.
    std::string& group = hierarchy.group;
    while (true) {
      std::ifstream file(absl::StrCat(hierarchy.mount, group, "/", hierarchy.file));
      std::string text;
      int64_t limit = 0;
      // No number, "max", means none.
      if (file >> text && absl::SimpleAtoi(text, &limit) && limit > 0) {
        least = least == 0 ? limit : std::min(least, limit);
      }
      const size_t slash = group.rfind('/');
      if (slash == std::string::npos) break;
      group.resize(slash);
    }
  }
  return least;
}

}  // namespace penstock
