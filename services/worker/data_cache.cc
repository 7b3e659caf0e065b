#include "services/worker/data_cache.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "services/rpc/data_patience.h"
#include "services/rpc/limits.h"

namespace penstock {
namespace {

// A run that is stopped, and a worker that ends, wait for a part that is on its way. On a slow link parts become smaller.
constexpr absl::Duration kFetchTimeout = absl::Seconds(3);
constexpr int64_t kPartBytesMin = 16 << 10;

}  // namespace

absl::StatusOr<std::vector<std::string>> DataCache::Fetch(
    const std::vector<std::string>& digests, absl::FunctionRef<absl::Status()> may_go_on) {
  const absl::Cleanup done = [this] { parts_ = 0; };
  uses_.clear();
  std::vector<std::string> paths;
  for (const std::string& sha256 : digests) {
    absl::StatusOr<DigestStore::Use> use = store_.Hold(sha256);
    if (absl::IsNotFound(use.status())) {
      PENSTOCK_RETURN_IF_ERROR(FetchOne(sha256, may_go_on));
      use = store_.Hold(sha256);
    }
    PENSTOCK_RETURN_IF_ERROR(use.status());
    paths.push_back(use->path);
    uses_.push_back(*std::move(use));
  }
  return paths;
}

absl::Status DataCache::FetchOne(const std::string& sha256,
                                 absl::FunctionRef<absl::Status()> may_go_on) {
  PENSTOCK_ASSIGN_OR_RETURN(const DigestStore::File file, store_.Find(sha256));
  notice_(absl::StrCat("fetches sha256:", sha256, " from byte ", file.held_bytes));
  DataPatience patience;
  part_bytes_max_ = rpc_limits::kDataPartBytesMax;
  int64_t size_bytes = file.size_bytes;  // 0: not known yet
  for (int64_t held = file.held_bytes; size_bytes == 0 || held < size_bytes;) {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    const absl::StatusOr<int64_t> fetched = FetchPart(sha256, held, size_bytes);
    if (fetched.ok()) {
      held = *fetched;
      ++parts_;
      patience.OnProgress();
      continue;
    }
    if (absl::IsDeadlineExceeded(fetched.status())) {
      part_bytes_max_ = std::max(part_bytes_max_ / 2, kPartBytesMin);
    }
    if (!patience.MayAskAgain(fetched.status())) {
      return Annotate(fetched.status(), absl::StrCat("cannot fetch sha256:", sha256));
    }
  }
  return store_.Finish(sha256);
}

absl::StatusOr<int64_t> DataCache::FetchPart(const std::string& sha256, int64_t held,
                                             int64_t& size_bytes) {
  v1::ReadDataRequest request;
  request.set_sha256(sha256);
  request.set_offset(held);
  request.set_bytes_max(part_bytes_max_);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ReadDataResponse part, read_(request, kFetchTimeout));
  if (Crc32c(part.bytes().data(), part.bytes().size()) != part.crc32c()) {
    return absl::DataLossError("a part came damaged");
  }
  size_bytes = part.size_bytes();
  return store_.Append(sha256, size_bytes, held, part.bytes());
}

}  // namespace penstock
