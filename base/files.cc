#include "base/files.h"

#include <fcntl.h>

#include "absl/strings/str_cat.h"
#include "base/file_tree.h"

namespace penstock {
namespace {

class MachineFiles final : public FileTree {
 protected:
  int Open(const std::string& path, int flags, mode_t mode) const override {
    return open(path.c_str(), flags | O_CLOEXEC, mode);
  }
};

}  // namespace

Files& RealFiles() {
  static MachineFiles files;
  return files;
}

std::string JoinPath(absl::string_view a, absl::string_view b) {
  if (a.empty() || (!b.empty() && b.front() == '/')) return std::string(b);
  if (a.back() == '/') return absl::StrCat(a, b);
  return absl::StrCat(a, "/", b);
}

}  // namespace penstock
