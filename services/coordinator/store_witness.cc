#include "services/coordinator/store_witness.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/crc32c.h"
#include "base/files.h"
#include "base/status.h"

namespace penstock {
namespace {

// Apart, so that no write of the disk touches both.
constexpr int64_t kPlaceBytes = 4096;
constexpr int64_t kPlaces = 2;
constexpr absl::string_view kTitle = "penstock state changes ";
constexpr size_t kNumberBytes = 20;

// Returns "penstock state changes 00000000000000000042 1a2b3c4d\n".
std::string LineOf(int64_t count) {
  const std::string text = absl::StrFormat("%s%0*d", kTitle, kNumberBytes, count);
  return absl::StrFormat("%s %08x\n", text, Crc32c(text.data(), text.size()));
}

std::optional<int64_t> CountOf(absl::string_view place) {
  int64_t count = 0;
  if (place.size() < kTitle.size() + kNumberBytes ||
      !absl::SimpleAtoi(place.substr(kTitle.size(), kNumberBytes), &count) ||
      !absl::StartsWith(place, LineOf(count))) {
    return std::nullopt;
  }
  return count;
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> StoreWitness::Read(const std::string& path) {
  const absl::StatusOr<std::string> bytes = RealFiles().Read(path, kPlaces * kPlaceBytes);
  if (absl::IsNotFound(bytes.status())) return std::nullopt;
  std::optional<int64_t> latest;
  for (int64_t place = 0; bytes.ok() && place < kPlaces; ++place) {
    const size_t begin = std::min<size_t>(place * kPlaceBytes, bytes->size());
    const auto count = CountOf(absl::string_view(*bytes).substr(begin, kPlaceBytes));
    if (count.has_value()) latest = std::max(latest.value_or(*count), *count);
  }
  if (bytes.ok() && latest.has_value()) return latest;
  if (!bytes.ok() && !absl::IsOutOfRange(bytes.status())) return bytes.status();
  return absl::DataLossError(absl::StrCat(path, ": does not say how many changes the state has"));
}

absl::StatusOr<StoreWitness> StoreWitness::Create(const std::string& path, int64_t count) {
  std::string place = LineOf(count);
  place.resize(kPlaceBytes, '\n');
  const std::string staged = path + ".new";
  PENSTOCK_RETURN_IF_ERROR(RealFiles().RemoveAll(staged));
  PENSTOCK_RETURN_IF_ERROR(RealFiles().WriteDurably(staged, {place, place}));
  PENSTOCK_RETURN_IF_ERROR(RealFiles().RenameDurably(staged, path));
  return Open(path);
}

absl::StatusOr<StoreWitness> StoreWitness::Open(const std::string& path) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.ok()) return FileError("open", path, errno);
  return StoreWitness(path, std::move(file));
}

absl::Status StoreWitness::Write(int64_t count) {
  const std::string line = LineOf(count);
  errno = ENOSPC;  // why a disk takes a part
  const ssize_t written =
      pwrite(file_.get(), line.data(), line.size(), count % kPlaces * kPlaceBytes);
  if (written != static_cast<ssize_t>(line.size())) return FileError("write", path_, errno);
  return fdatasync(file_.get()) == 0 ? absl::OkStatus() : FileError("sync", path_, errno);
}

}  // namespace penstock
