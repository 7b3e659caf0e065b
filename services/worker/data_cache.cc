#include "services/worker/data_cache.h"

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/rpc/data_part.h"
#include "services/worker/part_transfer.h"

namespace penstock {

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
  int64_t held = file.held_bytes;
  if (file.size_bytes == 0 || held < file.size_bytes) {
    const auto fetch = [&](int64_t part_bytes_max) -> absl::StatusOr<bool> {
      PENSTOCK_ASSIGN_OR_RETURN(const bool over, FetchPart(sha256, part_bytes_max, held));
      ++parts_;
      return over;
    };
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(TransferParts(may_go_on, fetch), absl::StrCat("cannot fetch sha256:", sha256)));
  }
  return store_.Finish(sha256);
}

absl::StatusOr<bool> DataCache::FetchPart(const std::string& sha256, int64_t part_bytes_max,
                                          int64_t& held) {
  v1::ReadDataRequest request;
  request.set_sha256(sha256);
  request.set_offset(held);
  request.set_bytes_max(part_bytes_max);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ReadDataResponse part, read_(request, kPartCallTimeout));
  PENSTOCK_RETURN_IF_ERROR(CheckPart(part));
  PENSTOCK_ASSIGN_OR_RETURN(held, store_.Append(sha256, part.size_bytes(), held, part.bytes()));
  return held >= part.size_bytes();
}

}  // namespace penstock
