#include "services/rpc/worker_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace penstock {

absl::Status CheckWorkerName(absl::string_view name) {
  constexpr size_t kLettersMax = 128;
  const bool good = !name.empty() && name.size() <= kLettersMax &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                             c == '.' || c == '_';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a worker's name has 1 to ", kLettersMax, " letters, digits, '-', '.' and '_', and not \"",
      absl::CHexEscape(name.substr(0, kLettersMax)), "\": say another --name"));
}

}  // namespace penstock
