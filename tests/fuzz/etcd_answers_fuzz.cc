// Answers of etcd that are damaged, or of something else that speaks its protocol: the state is refused, or what is read of
// it is what was written. Rows may be missing, for only etcd says which there are.
//
// An input is changes of answers, in one byte for which answer, two of place and one of value each.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "services/coordinator/etcd_store.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/fuzzed_jobs.h"
#include "tests/services/coordinator/fake_etcd.h"

namespace penstock {
namespace {

constexpr char kFuzzedPrefix[] = "/fuzzed";

absl::Status IsNotAsked() { return absl::UnimplementedError("a store has no lease"); }

// Asks an etcd, and changes its answers.
class ChangedEtcd final : public EtcdCalls {
 public:
  ChangedEtcd(EtcdCalls& etcd, FuzzBytes changes) : etcd_(etcd) {
    while (!changes.empty()) {
      const int answer = changes.Take<uint8_t>();
      const size_t place = changes.Take<uint16_t>();
      changes_[answer].emplace_back(place, changes.Take<char>());
    }
  }

  absl::StatusOr<etcdserverpb::RangeResponse> Range(const etcdserverpb::RangeRequest& request,
                                                    absl::Duration timeout) override {
    return Changed(etcd_.Range(request, timeout));
  }
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(const etcdserverpb::TxnRequest& request,
                                                absl::Duration timeout) override {
    return Changed(etcd_.Txn(request, timeout));
  }
  absl::StatusOr<Lease> GrantLease(int64_t, absl::Duration) override { return IsNotAsked(); }
  absl::StatusOr<int64_t> KeepAlive(int64_t, absl::Duration) override { return IsNotAsked(); }
  absl::Status RevokeLease(int64_t, absl::Duration) override { return IsNotAsked(); }
  absl::StatusOr<bool> AwaitRemoval(const std::string&, int64_t, absl::Duration,
                                    StreamCanceller&) override {
    return IsNotAsked();
  }

 private:
  // What is no message any more, gRPC refuses.
  template <typename Response>
  absl::StatusOr<Response> Changed(absl::StatusOr<Response> response) {
    const auto changes = changes_.find(answers_++);
    if (!response.ok() || changes == changes_.end()) return response;
    std::string bytes = response->SerializeAsString();
    for (const auto& [place, value] : changes->second) {
      if (!bytes.empty()) bytes[place % bytes.size()] = value;
    }
    if (!response->ParseFromString(bytes)) return absl::InternalError("this is no answer");
    return response;
  }

  EtcdCalls& etcd_;
  std::map<int, std::vector<std::pair<size_t, char>>> changes_;  // by answer
  int answers_ = 0;
};

// The keys and values of a small state, with a timeline that is in parts.
std::map<std::string, std::string> MakeFuzzedPairs() {
  FakeEtcd etcd(RealClock());
  const int64_t term = etcd.Put(LeaderKey(kFuzzedPrefix), "a:1");
  const absl::StatusOr<std::unique_ptr<EtcdStore>> store =
      EtcdStore::Open(etcd, kFuzzedPrefix, term);
  PENSTOCK_CHECK(store.ok());
  WriteFuzzedJobs(**store);
  StateStore::Change::Timeline timeline = {kFuzzedJobs[0], {}};
  timeline.timeline.set_workers(2);
  timeline.timeline.add_missing_workers(std::string(EtcdStore::kInlineBytesMax, 'w'));
  KeepLayerTimes times{.key = "layer", .times = {}};
  times.times.set_device("cpu");
  PENSTOCK_CHECK((*store)->Write({{.timeline = &timeline}, {.layer_times = &times}}).ok());
  return etcd.All();
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(etcd_answers) {
  using namespace penstock;
  static const auto& pairs = *new std::map<std::string, std::string>(MakeFuzzedPairs());
  FakeEtcd etcd(RealClock());
  for (const auto& [key, value] : pairs) etcd.Put(key, value);
  etcd.Remove(LeaderKey(kFuzzedPrefix));
  const int64_t term = etcd.Put(LeaderKey(kFuzzedPrefix), "b:2");
  ChangedEtcd changed(etcd, FuzzBytes(data, size));
  const absl::StatusOr<std::unique_ptr<EtcdStore>> store =
      EtcdStore::Open(changed, kFuzzedPrefix, term);
  if (!store.ok()) return 0;
  const absl::StatusOr<std::vector<StoredJob>> jobs = (*store)->Load();
  if (!jobs.ok()) return 0;
  FuzzAccepted();
  PENSTOCK_CHECK(jobs->size() <= std::size(kFuzzedJobs));
  for (const StoredJob& job : *jobs) CheckFuzzedJob(job, **store);
  const absl::StatusOr<v1::DeviceProfile> times = (*store)->ReadLayerTimes("layer");
  PENSTOCK_CHECK(!times.ok() || times->device() == "cpu");
  const SaveJob again = FuzzedJobOf(kFuzzedJobs[1]);
  (*store)->Write({{.job = &again}}).IgnoreError();
  return 0;
}
