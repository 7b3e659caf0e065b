// DataCache: files that users put to the coordinator (data.proto), fetched in parts into a directory of this worker's and
// kept there for later jobs.
//
// A fetch goes on after breaks of the link, of the coordinator or of this worker where the disk ends. It gives up when nothing has come
// for kDataPatience.
//
// Thread safety: parts() from any thread, the rest from the one of the executor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "data/digest_store.h"
#include "penstock/v1/data.pb.h"
#include "worker/data_fetcher.h"

namespace penstock {

class DataCache final : public DataFetcher {
 public:
  // Asks the coordinator for a part (DataService.ReadData).
  using ReadCall = std::function<absl::StatusOr<v1::ReadDataResponse>(const v1::ReadDataRequest&,
                                                                      absl::Duration timeout)>;

  // `notice`: takes a line for the log. REQUIRES: `store` outlives it, and removes what is unused.
  DataCache(DigestStore& store, ReadCall read, std::function<void(const std::string&)> notice)
      : store_(store), read_(std::move(read)), notice_(std::move(notice)) {}

  absl::StatusOr<std::vector<std::string>> Fetch(
      const std::vector<std::string>& digests,
      absl::FunctionRef<absl::Status()> may_go_on) override;

  // Grows with each part while a fetch is under way, else 0: heartbeats show by it that the worker comes further.
  int64_t parts() const { return parts_; }

 private:
  absl::Status FetchOne(const std::string& sha256, absl::FunctionRef<absl::Status()> may_go_on);
  // Gets the part at `held`, which then says how much is held. Returns whether that is all.
  absl::StatusOr<bool> FetchPart(const std::string& sha256, int64_t part_bytes_max, int64_t& held);

  DigestStore& store_;
  const ReadCall read_;
  const std::function<void(const std::string&)> notice_;
  std::vector<DigestStore::Use> uses_;  // of the last fetch
  std::atomic<int64_t> parts_ = 0;
};

}  // namespace penstock
