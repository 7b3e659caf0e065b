// EtcdStore: what is read.
#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "services/coordinator/etcd_rows.h"
#include "services/coordinator/etcd_store.h"
#include "services/coordinator/job_store_rows.h"

namespace penstock {

absl::Status EtcdStore::Begin() {
  etcdserverpb::RangeRequest request;
  request.set_key(KeyOf(etcd_rows::kVersion));
  PENSTOCK_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse version,
                            etcd_.Range(request, etcd_limits::kCallTimeout));
  if (version.kvs_size() > 0 && version.kvs(0).value() != kVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "the state at ", prefix_, " in etcd has version ", absl::CHexEscape(version.kvs(0).value()),
        "; this build reads ", kVersion, ". Use a newer build, or another prefix"));
  }
  request.set_key(KeyOf(etcd_rows::kTurn));
  PENSTOCK_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse turn,
                            etcd_.Range(request, etcd_limits::kCallTimeout));
  turn_revision_ = turn.kvs_size() == 0 ? 0 : turn.kvs(0).mod_revision();
  etcdserverpb::TxnRequest first;
  if (version.kvs_size() == 0) *first.add_success() = Put(etcd_rows::kVersion, kVersion);
  return Commit(std::move(first));
}

absl::Status EtcdStore::ReadIndex() {
  PENSTOCK_RETURN_IF_ERROR(ForEachJob(
      [this](const std::string& job_id, const v1::StoredRow& stored, const v1::GetJobResponse&) {
        index_.jobs[job_id] = {.number = stored.number(), .idempotency_key = stored.key()};
        index_.last_job_number = std::max(index_.last_job_number, stored.number());
        return absl::OkStatus();
      }));
  const std::string heads = etcd_rows::Head("");
  PENSTOCK_RETURN_IF_ERROR(
      ForEach(heads, etcd_rows::EndOf(heads), {},
              [&](const std::string& row, const v1::StoredRow& stored) -> absl::Status {
                const std::string job_id = row.substr(heads.size());
                if (HeadDigest(job_id, stored.number()) != stored.digest()) {
                  return Damaged(row, "is damaged");
                }
                index_.heads[job_id] = stored.number();
                return absl::OkStatus();
              }));
  const Reading keys = {.page = kPageKeys, .keys_only = true};
  const std::string timelines = etcd_rows::Timeline("");
  PENSTOCK_RETURN_IF_ERROR(ForEach(timelines, etcd_rows::EndOf(timelines), keys,
                                   [&](const std::string& row, const v1::StoredRow&) {
                                     index_.timelines.insert(row.substr(timelines.size()));
                                     return absl::OkStatus();
                                   }));
  // Of a key that is there twice, for the answer to a write was lost, the later counts, which is read last.
  const std::string times = etcd_rows::kAllLayerTimes;
  std::vector<Unit> older;
  PENSTOCK_RETURN_IF_ERROR(
      ForEach(times, etcd_rows::EndOf(times), keys,
              [&](const std::string& row, const v1::StoredRow&) -> absl::Status {
                const std::vector<std::string> words = absl::StrSplit(row, '/');
                int64_t number = 0;
                if (words.size() != 3 || !absl::SimpleAtoi(words[1], &number)) {
                  return Damaged(row, "is no name of layer times");
                }
                const auto [known, is_new] = index_.layer_times.try_emplace(words[2], number);
                if (!is_new) {
                  older.push_back({Delete(etcd_rows::LayerTimes(known->second, words[2]))});
                  known->second = number;
                }
                index_.last_times_number = std::max(index_.last_times_number, number);
                return absl::OkStatus();
              }));
  return Commit(std::move(older));
}

absl::Status EtcdStore::DropLooseParts() {
  // The digests of the values whose parts there are, by row.
  std::map<std::string, std::set<std::string>> found;
  const std::string parts = etcd_rows::kAllParts;
  PENSTOCK_RETURN_IF_ERROR(
      ForEach(parts, etcd_rows::EndOf(parts), {.page = kPageKeys, .keys_only = true},
              [&](const std::string& key, const v1::StoredRow&) -> absl::Status {
                const size_t number = key.rfind('/');
                const size_t digest = key.rfind('/', number - 1);
                if (digest == std::string::npos || digest <= parts.size()) {
                  return Damaged(key, "is no name of a part");
                }
                found[key.substr(parts.size(), digest - parts.size())].insert(
                    key.substr(digest + 1, number - digest - 1));
                return absl::OkStatus();
              }));
  std::vector<Unit> units;
  for (const auto& [row, digests] : found) {
    const absl::StatusOr<v1::StoredRow> stored = ReadRow(row);
    if (!stored.ok() && !absl::IsNotFound(stored.status())) return stored.status();
    const std::string named =
        stored.ok() && stored->parts() > 0 ? absl::BytesToHexString(stored->digest()) : "";
    if (!named.empty()) index_.parts[row] = true;
    if (digests.size() > 1 || !digests.contains(named)) units.push_back(DeleteParts(row, named));
  }
  return Commit(std::move(units));
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdStore::ReadPage(
    const etcdserverpb::RangeRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(etcdserverpb::RangeResponse page,
                            etcd_.Range(request, etcd_limits::kCallTimeout));
  std::string least = request.key();
  for (const mvccpb::KeyValue& pair : page.kvs()) {
    if (pair.key() < least || pair.key() >= request.range_end()) {
      return absl::DataLossError(absl::StrCat(
          "etcd was asked for the keys from ", absl::CHexEscape(least), " to before ",
          absl::CHexEscape(request.range_end()), " and gives ", absl::CHexEscape(pair.key()),
          "; check that --state names members of one etcd, with nothing in between"));
    }
    least = pair.key() + '\0';
  }
  return page;
}

absl::Status EtcdStore::ForEach(const std::string& begin, const std::string& end,
                                const Reading& reading, const TakeRow& take) {
  etcdserverpb::RangeRequest request;
  request.set_key(KeyOf(begin));
  request.set_range_end(KeyOf(end));
  request.set_keys_only(reading.keys_only);
  for (int64_t read = 0;;) {
    const int64_t left = reading.count_max - read;
    if (reading.count_max > 0 && left <= 0) return absl::OkStatus();
    request.set_limit(reading.count_max > 0 ? std::min<int64_t>(left, reading.page) : reading.page);
    PENSTOCK_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response, ReadPage(request));
    for (const mvccpb::KeyValue& pair : response.kvs()) {
      const std::string row = pair.key().substr(prefix_.size() + 1);
      v1::StoredRow stored;
      if (!reading.keys_only && !stored.ParseFromString(pair.value())) {
        return Damaged(row, "is damaged");
      }
      PENSTOCK_RETURN_IF_ERROR(take(row, stored));
      ++read;
    }
    if (!response.more() || response.kvs_size() == 0) return absl::OkStatus();
    request.set_key(response.kvs(response.kvs_size() - 1).key() + '\0');
  }
}

absl::Status EtcdStore::ForEachJob(const TakeJob& take) {
  const std::string jobs = etcd_rows::Job("");
  return ForEach(jobs, etcd_rows::EndOf(jobs), {},
                 [&](const std::string& row, const v1::StoredRow& stored) -> absl::Status {
                   const std::string job_id = row.substr(jobs.size());
                   PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse record,
                                             RecordOf(job_id, stored));
                   return take(job_id, stored, record);
                 });
}

absl::StatusOr<v1::StoredRow> EtcdStore::ReadRow(const std::string& row) {
  etcdserverpb::RangeRequest request;
  request.set_key(KeyOf(row));
  PENSTOCK_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response,
                            etcd_.Range(request, etcd_limits::kCallTimeout));
  if (response.kvs_size() == 0) {
    return absl::NotFoundError(absl::StrCat("etcd has no key ", KeyOf(row)));
  }
  v1::StoredRow stored;
  if (!stored.ParseFromString(response.kvs(0).value())) return Damaged(row, "is damaged");
  return stored;
}

absl::StatusOr<v1::StoredRow> EtcdStore::ReadKnownRow(const std::string& row) {
  absl::StatusOr<v1::StoredRow> stored = ReadRow(row);
  if (absl::IsNotFound(stored.status())) return Damaged(row, "is missing");
  return stored;
}

absl::StatusOr<std::string> EtcdStore::ValueOf(const std::string& row,
                                               const v1::StoredRow& stored) {
  if (stored.parts() == 0) return stored.value();
  const std::string parts = etcd_rows::Parts(row, absl::BytesToHexString(stored.digest()));
  std::string value, key = KeyOf(parts);
  int64_t read = 0;
  // Parts are no StoredRows, so they are read here.
  for (bool more = true; more;) {
    etcdserverpb::RangeRequest request;
    request.set_key(key);
    request.set_range_end(KeyOf(etcd_rows::EndOf(parts)));
    request.set_limit(kPageParts);
    PENSTOCK_ASSIGN_OR_RETURN(const etcdserverpb::RangeResponse response, ReadPage(request));
    for (const mvccpb::KeyValue& pair : response.kvs()) {
      value += pair.value();
      key = pair.key() + '\0';
      ++read;
    }
    more = response.more() && response.kvs_size() > 0 && read < stored.parts();
  }
  if (read != stored.parts()) {
    return Damaged(row, absl::StrCat("has ", read, " of its ", stored.parts(), " parts"));
  }
  return value;
}

absl::Status EtcdStore::Damaged(absl::string_view row, absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(
      "the key ", absl::CHexEscape(KeyOf(row)), " in etcd ", what,
      "; restore a snapshot of etcd, or remove what is damaged with etcdctl del while no "
      "coordinator runs"));
}

absl::StatusOr<v1::GetJobResponse> EtcdStore::RecordOf(const std::string& job_id,
                                                       const v1::StoredRow& stored) {
  const std::string row = etcd_rows::Job(job_id);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, ValueOf(row, stored));
  v1::GetJobResponse record;
  if (JobDigest(stored.number(), job_id, stored.key(), bytes) != stored.digest() ||
      !record.ParseFromString(bytes)) {
    return Damaged(row, "is damaged");
  }
  return record;
}

absl::StatusOr<std::vector<StoredJob>> EtcdStore::Load() {
  // A number may stand twice, if a write was not finished.
  std::multimap<int64_t, StoredJob> jobs;
  PENSTOCK_RETURN_IF_ERROR(ForEachJob([&](const std::string& job_id, const v1::StoredRow& stored,
                                          const v1::GetJobResponse& record) {
    const auto head = index_.heads.find(job_id);
    jobs.emplace(stored.number(),
                 StoredJob{.record = record,
                           .idempotency_key = stored.key(),
                           .last_sequence = head == index_.heads.end() ? 0 : head->second});
    return absl::OkStatus();
  }));
  std::vector<StoredJob> ordered;
  for (auto& [number, job] : jobs) ordered.push_back(std::move(job));
  return ordered;
}

absl::StatusOr<v1::GetJobResponse> EtcdStore::ReadRecord(const std::string& job_id) {
  if (!index_.jobs.contains(job_id)) {
    return absl::NotFoundError(absl::StrCat("there is no job \"", job_id, "\""));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::StoredRow stored, ReadKnownRow(etcd_rows::Job(job_id)));
  return RecordOf(job_id, stored);
}

absl::StatusOr<v1::GetTimelineResponse> EtcdStore::ReadTimeline(const std::string& job_id) {
  if (!index_.timelines.contains(job_id)) {
    return absl::NotFoundError(absl::StrCat("job ", job_id, " has no timeline"));
  }
  const std::string row = etcd_rows::Timeline(job_id);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::StoredRow stored, ReadKnownRow(row));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, ValueOf(row, stored));
  v1::GetTimelineResponse timeline;
  if (TimelineDigest(job_id, bytes) != stored.digest() || !timeline.ParseFromString(bytes)) {
    return Damaged(row, "is damaged");
  }
  return timeline;
}

absl::StatusOr<v1::DeviceProfile> EtcdStore::ReadLayerTimes(const std::string& key) {
  const auto known = index_.layer_times.find(etcd_rows::HashOf(key));
  if (known == index_.layer_times.end()) {
    return absl::NotFoundError("there are no such layer times");
  }
  const std::string row = etcd_rows::LayerTimes(known->second, known->first);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::StoredRow stored, ReadKnownRow(row));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, ValueOf(row, stored));
  v1::DeviceProfile times;
  if (LayerTimesDigest(key, bytes) != absl::BytesToHexString(stored.digest()) ||
      !times.ParseFromString(bytes)) {
    return Damaged(row, "is damaged");
  }
  return times;
}

absl::StatusOr<std::vector<v1::JobEvent>> EtcdStore::ReadEvents(const std::string& job_id,
                                                                int64_t after_sequence,
                                                                int count_max) {
  std::vector<v1::JobEvent> events;
  if (count_max <= 0) return events;
  const std::string begin = etcd_rows::Events(job_id);
  int64_t read = after_sequence;
  PENSTOCK_RETURN_IF_ERROR(
      ForEach(etcd_rows::Event(job_id, after_sequence + 1), etcd_rows::EndOf(begin),
              {.count_max = count_max},
              [&](const std::string& row, const v1::StoredRow& stored) -> absl::Status {
                int64_t sequence = 0;
                PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, ValueOf(row, stored));
                if (!absl::SimpleAtoi(row.substr(begin.size()), &sequence) ||
                    EventDigest(job_id, sequence, stored.previous(), bytes) != stored.digest() ||
                    !events.emplace_back().ParseFromString(bytes)) {
                  return Damaged(row, "is damaged");
                }
                // The one before may have been read though this row does not name it: a write that failed had it.
                if (stored.previous() > read) {
                  return Damaged(etcd_rows::Event(job_id, stored.previous()), "is missing");
                }
                read = sequence;
                return absl::OkStatus();
              }));
  const auto head = index_.heads.find(job_id);
  const bool is_end = static_cast<int>(events.size()) < count_max;
  if (is_end && head != index_.heads.end() && read < head->second) {
    return Damaged(etcd_rows::Event(job_id, head->second), "is missing");
  }
  return events;
}

}  // namespace penstock
