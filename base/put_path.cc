#include "base/put_path.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/utf8.h"

namespace penstock {
namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kNamePartBytesMax = 255;

bool IsControl(char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F; }

}  // namespace

std::string PutPath::ToString() const {
  return absl::StrCat(kPutPrefix, sha256, is_directory ? "/" : "", name);
}

bool IsPutPath(absl::string_view path) { return absl::StartsWith(path, kPutPrefix); }

absl::StatusOr<PutPath> ParsePutPath(absl::string_view path) {
  absl::ConsumePrefix(&path, kPutPrefix);
  if (path.empty()) return absl::InvalidArgumentError("is \"sha256:\", without a digest");
  const size_t slash = path.find('/');
  PutPath put = {.sha256 = std::string(path.substr(0, slash))};
  if (!IsSha256Hex(put.sha256)) {
    return absl::InvalidArgumentError(
        absl::StrCat("is \"", CleanUtf8(put.sha256, 64), "\"; expected 64 digits of 0-9 and a-f"));
  }
  if (slash == absl::string_view::npos) return put;
  put.is_directory = true;
  absl::string_view name = path.substr(slash + 1);
  absl::ConsumeSuffix(&name, "/");
  if (name.empty() && slash + 1 == path.size()) return put;
  if (const absl::Status below = CheckNameBelow(name); !below.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("names \"", CleanUtf8(name, 200),
                                                   "\" in sha256:", put.sha256, "/, which ",
                                                   below.message()));
  }
  put.name = std::string(name);
  return put;
}

absl::Status CheckNameBelow(absl::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", name.size(), " bytes; expected 1 to ", kNameBytesMax));
  }
  if (FindInvalidUtf8(name) != absl::string_view::npos ||
      std::any_of(name.begin(), name.end(), IsControl)) {
    return absl::InvalidArgumentError("is not UTF-8 without control characters; rename it");
  }
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part == "." || part == ".." || part.empty()) {
      return absl::InvalidArgumentError(
          "leads out of the directory, or is not its plain name; expected a name below the "
          "directory without \".\", \"..\" and double \"/\"");
    }
    if (part.size() > kNamePartBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "has a part of ", part.size(), " bytes; expected at most ", kNamePartBytesMax));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
