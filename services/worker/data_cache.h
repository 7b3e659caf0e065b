// DataCache: what users put to the coordinator (data.proto), fetched in parts into a directory of this worker's and kept there for
// later jobs: each file once, in however many directories it was put. The files of a directory get their names in views/HEX for the
// run that uses them, as links, which take no room.
//
// A fetch goes on after breaks of the link, of the coordinator or of this worker where the disk ends. It gives up when nothing has come
// for kDataPatience.
//
// Thread safety: parts() from any thread, the rest from the one of the executor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "data/digest_store.h"
#include "data/put_listing.h"
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

  void BeginRun() override;
  absl::StatusOr<std::string> Fetch(const PutPath& put,
                                    absl::FunctionRef<bool(absl::string_view name)> wanted,
                                    absl::FunctionRef<absl::Status()> may_go_on) override;

  // Grows with each part while a fetch is under way, else 0: heartbeats show by it that the worker comes further.
  int64_t parts() const { return parts_; }

 private:
  // The path of a file, which is used from now on.
  absl::StatusOr<std::string> Use(const std::string& sha256,
                                  absl::FunctionRef<absl::Status()> may_go_on);
  // Gives a file of a directory its name.
  absl::Status Link(const PutEntry& entry, const std::string& name,
                    absl::FunctionRef<absl::Status()> may_go_on);
  absl::Status FetchOne(const std::string& sha256, absl::FunctionRef<absl::Status()> may_go_on);
  // Gets the part at `held`, which then says how much is held. Returns whether that is all.
  absl::StatusOr<bool> FetchPart(const std::string& sha256, int64_t part_bytes_max, int64_t& held);

  DigestStore& store_;
  const ReadCall read_;
  const std::function<void(const std::string&)> notice_;
  std::map<std::string, DigestStore::Use> uses_;  // of this run, by digest
  std::atomic<int64_t> parts_ = 0;
};

}  // namespace penstock
