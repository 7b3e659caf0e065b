#include "services/coordinator/etcd_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "services/coordinator/drafted.h"
#include "services/coordinator/etcd_rows.h"
#include "services/coordinator/job_store_rows.h"

namespace penstock {

namespace {

using Operations = std::vector<etcdserverpb::RequestOp>;

void Append(Operations more, Operations& unit) {
  for (etcdserverpb::RequestOp& operation : more) unit.push_back(std::move(operation));
}

}  // namespace

std::string LeaderKey(absl::string_view prefix) { return absl::StrCat(prefix, "/leader"); }

absl::StatusOr<std::unique_ptr<EtcdStore>> EtcdStore::Open(EtcdCalls& etcd,
                                                           const std::string& prefix,
                                                           int64_t term) {
  std::unique_ptr<EtcdStore> store(new EtcdStore(etcd, prefix, term));
  PENSTOCK_RETURN_IF_ERROR(store->Begin());
  PENSTOCK_RETURN_IF_ERROR(store->ReadIndex());
  PENSTOCK_RETURN_IF_ERROR(store->DropLooseParts());
  return store;
}

absl::Status EtcdStore::Write(absl::Span<const Change> changes) {
  if (changes.empty() && uncertain_jobs_.empty()) return absl::OkStatus();
  Draft draft = DraftOf(changes);
  Index& changed = draft.changed;
  const absl::Status written = Commit(std::move(draft.units));
  if (!written.ok()) {
    for (const auto& [job_id, row] : changed.jobs) {
      if (!index_.jobs.contains(job_id)) uncertain_jobs_.insert(job_id);
    }
    return written;
  }
  Take(changed.jobs, index_.jobs);
  Take(changed.heads, index_.heads);
  index_.timelines.merge(changed.timelines);
  Take(changed.parts, index_.parts);
  if (!changed.layer_times.empty()) index_.layer_times = std::move(changed.layer_times);
  index_.last_job_number = changed.last_job_number;
  index_.last_times_number = changed.last_times_number;
  uncertain_jobs_.clear();
  return absl::OkStatus();
}

absl::Status EtcdStore::Touch() {
  return uncertain_jobs_.empty() ? Commit(etcdserverpb::TxnRequest()) : Write({});
}

EtcdStore::Draft EtcdStore::DraftOf(absl::Span<const Change> changes) const {
  std::map<std::string, JobChanges> jobs;
  std::vector<std::string> order;  // of the jobs, as they are first named
  std::map<std::string, const KeepLayerTimes*> layer_times;
  const auto of_job = [&](const std::string& job_id) -> JobChanges& {
    const auto [found, is_new] = jobs.try_emplace(job_id);
    if (is_new) order.push_back(job_id);
    return found->second;
  };
  for (const Change& change : changes) {
    if (change.job != nullptr) {
      JobChanges& job = of_job(change.job->record.summary().job_id());
      job.job = change.job;
      if (!change.job->idempotency_key.empty()) job.idempotency_key = change.job->idempotency_key;
    } else if (change.event != nullptr) {
      of_job(change.event->job_id).events.push_back(change.event);
    } else if (change.timeline != nullptr) {
      of_job(change.timeline->job_id).timeline = change.timeline;
    } else {
      layer_times[change.layer_times->key] = change.layer_times;
    }
  }
  Draft draft;
  if (!layer_times.empty()) draft.changed.layer_times = index_.layer_times;
  draft.changed.last_job_number = index_.last_job_number;
  draft.changed.last_times_number = index_.last_times_number;
  for (const std::string& job_id : uncertain_jobs_) {
    if (const auto again = jobs.find(job_id); again != jobs.end() && again->second.job != nullptr) {
      continue;
    }
    Unit drop = DeleteParts(etcd_rows::Job(job_id), "");
    drop.push_back(Delete(etcd_rows::Job(job_id)));
    draft.units.push_back(std::move(drop));
  }
  for (const std::string& job_id : order) DraftJob(job_id, jobs.at(job_id), draft);
  int64_t surplus = static_cast<int64_t>(layer_times.size()) - kLayerTimesMax;
  for (const auto& [key, keep] : layer_times) {
    if (surplus-- <= 0) DraftLayerTimes(*keep, draft);
  }
  return draft;
}

void EtcdStore::DraftJob(const std::string& job_id, const JobChanges& changed, Draft& draft) const {
  Unit unit;
  const auto head = index_.heads.find(job_id);
  const int64_t had = head == index_.heads.end() ? 0 : head->second;
  int64_t last = had;
  for (const PublishEvent* const event : changed.events) {
    const int64_t sequence = event->event.sequence();
    if (sequence <= last) continue;  // it is there
    if (!unit.empty()) draft.units.push_back(std::exchange(unit, {}));
    const std::string bytes = event->event.SerializeAsString();
    v1::StoredRow stored;
    stored.set_previous(last);
    stored.set_digest(EventDigest(job_id, sequence, last, bytes));
    DraftRow(etcd_rows::Event(job_id, sequence), std::move(stored), bytes, unit, draft);
    last = sequence;
  }
  if (last > had) {
    v1::StoredRow stored;
    stored.set_number(last);
    stored.set_digest(HeadDigest(job_id, last));
    DraftRow(etcd_rows::Head(job_id), std::move(stored), "", unit, draft);
    draft.changed.heads[job_id] = last;
  }
  const auto known = index_.jobs.find(job_id);
  if (changed.job != nullptr) {
    JobRow row = known != index_.jobs.end() ? known->second
                                            : JobRow{.number = ++draft.changed.last_job_number};
    if (!changed.idempotency_key.empty()) row.idempotency_key = changed.idempotency_key;
    const std::string record = changed.job->record.SerializeAsString();
    v1::StoredRow stored;
    stored.set_number(row.number);
    stored.set_key(row.idempotency_key);
    stored.set_digest(JobDigest(row.number, job_id, row.idempotency_key, record));
    DraftRow(etcd_rows::Job(job_id), std::move(stored), record, unit, draft);
    draft.changed.jobs[job_id] = std::move(row);
  }
  if (!unit.empty()) draft.units.push_back(std::move(unit));
  if (changed.timeline == nullptr || (changed.job == nullptr && known == index_.jobs.end())) return;
  const std::string bytes = changed.timeline->timeline.SerializeAsString();
  v1::StoredRow stored;
  stored.set_digest(TimelineDigest(job_id, bytes));
  Unit timeline;
  DraftRow(etcd_rows::Timeline(job_id), std::move(stored), bytes, timeline, draft);
  draft.units.push_back(std::move(timeline));
  draft.changed.timelines.insert(job_id);
}

void EtcdStore::DraftLayerTimes(const KeepLayerTimes& keep, Draft& draft) const {
  std::map<std::string, int64_t>& kept = draft.changed.layer_times;
  const std::string hash = etcd_rows::HashOf(keep.key);
  const int64_t number = ++draft.changed.last_times_number;
  const std::string bytes = keep.times.SerializeAsString();
  Unit unit;
  const auto drop = [&](const std::string& of_hash, int64_t of_number) {
    const std::string row = etcd_rows::LayerTimes(of_number, of_hash);
    DraftPartsGone(row, unit, draft);
    unit.push_back(Delete(row));
  };
  if (const auto before = kept.find(hash); before != kept.end()) {
    drop(hash, before->second);
  } else if (kept.size() >= static_cast<size_t>(kLayerTimesMax)) {
    const auto oldest = std::min_element(
        kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    drop(oldest->first, oldest->second);
    kept.erase(oldest);
  }
  v1::StoredRow stored;
  stored.set_key(keep.key);
  stored.set_digest(absl::HexStringToBytes(LayerTimesDigest(keep.key, bytes)));
  DraftRow(etcd_rows::LayerTimes(number, hash), std::move(stored), bytes, unit, draft);
  kept[hash] = number;
  draft.units.push_back(std::move(unit));
}

void EtcdStore::DraftRow(const std::string& row, v1::StoredRow stored, const std::string& value,
                         Unit& unit, Draft& draft) const {
  if (value.size() <= kInlineBytesMax) {
    stored.set_value(value);
    DraftPartsGone(row, unit, draft);
  } else {
    const std::string digest = absl::BytesToHexString(stored.digest());
    int32_t parts = 0;
    for (size_t begin = 0; begin < value.size(); begin += kPartBytesMax) {
      draft.units.push_back(
          {Put(etcd_rows::Part(row, digest, parts++), value.substr(begin, kPartBytesMax))});
    }
    stored.set_parts(parts);
    Append(DeleteParts(row, digest), unit);
    draft.changed.parts[row] = true;
  }
  unit.push_back(Put(row, stored.SerializeAsString()));
}

void EtcdStore::DraftPartsGone(const std::string& row, Unit& unit, Draft& draft) const {
  const bool* const has_parts = FindIn(draft.changed.parts, index_.parts, row);
  if (has_parts == nullptr || !*has_parts) return;
  Append(DeleteParts(row, ""), unit);
  draft.changed.parts[row] = false;
}

etcdserverpb::RequestOp EtcdStore::Put(absl::string_view row, const std::string& value) const {
  etcdserverpb::RequestOp operation;
  operation.mutable_request_put()->set_key(KeyOf(row));
  operation.mutable_request_put()->set_value(value);
  return operation;
}

etcdserverpb::RequestOp EtcdStore::Delete(absl::string_view row) const {
  etcdserverpb::RequestOp operation;
  operation.mutable_request_delete_range()->set_key(KeyOf(row));
  return operation;
}

etcdserverpb::RequestOp EtcdStore::Delete(absl::string_view begin, absl::string_view end) const {
  etcdserverpb::RequestOp operation = Delete(begin);
  operation.mutable_request_delete_range()->set_range_end(KeyOf(end));
  return operation;
}

EtcdStore::Unit EtcdStore::DeleteParts(const std::string& row,
                                       const std::string& kept_digest_hex) const {
  const std::string all = etcd_rows::Parts(row);
  if (kept_digest_hex.empty()) return {Delete(all, etcd_rows::EndOf(all))};
  const std::string kept = etcd_rows::Parts(row, kept_digest_hex);
  return {Delete(all, kept), Delete(etcd_rows::EndOf(kept), etcd_rows::EndOf(all))};
}

absl::Status EtcdStore::Commit(std::vector<Unit> units) {
  etcdserverpb::TxnRequest transaction;
  int64_t bytes = 0;
  for (Unit& unit : units) {
    int64_t unit_bytes = 0;
    for (const auto& operation : unit) {
      unit_bytes += static_cast<int64_t>(operation.ByteSizeLong());
    }
    const int64_t operations = transaction.success_size() + static_cast<int64_t>(unit.size());
    if (transaction.success_size() > 0 &&
        (operations > etcd_limits::kTransactionOperationsMax ||
         bytes + unit_bytes > etcd_limits::kTransactionBytesMax)) {
      PENSTOCK_RETURN_IF_ERROR(Commit(std::exchange(transaction, {})));
      bytes = 0;
    }
    for (auto& operation : unit) *transaction.add_success() = std::move(operation);
    bytes += unit_bytes;
  }
  return transaction.success_size() > 0 ? Commit(std::move(transaction)) : absl::OkStatus();
}

absl::Status EtcdStore::Commit(etcdserverpb::TxnRequest transaction) {
  PENSTOCK_RETURN_IF_ERROR(deposed_);
  // More turns than were lost just before cannot have been taken meanwhile.
  constexpr int kAttemptsMax = 16;
  const std::string leader = LeaderKey(prefix_), turn = KeyOf(etcd_rows::kTurn);
  const std::string number = absl::StrCat(term_, "/", ++turns_);
  etcdserverpb::Compare& leads = *transaction.add_compare();
  leads.set_key(leader);
  leads.set_target(etcdserverpb::Compare::CREATE);
  leads.set_result(etcdserverpb::Compare::EQUAL);
  leads.set_create_revision(term_);
  etcdserverpb::Compare& is_next = *transaction.add_compare();
  is_next.set_key(turn);
  is_next.set_target(etcdserverpb::Compare::MOD);
  is_next.set_result(etcdserverpb::Compare::EQUAL);
  *transaction.add_success() = Put(etcd_rows::kTurn, number);
  transaction.add_failure()->mutable_request_range()->set_key(leader);
  transaction.add_failure()->mutable_request_range()->set_key(turn);
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    is_next.set_mod_revision(turn_revision_);
    PENSTOCK_FAULT_POINT_STATUS(kEtcdBeforeTransaction);
    PENSTOCK_ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response,
                              etcd_.Txn(transaction, etcd_limits::kCallTimeout));
    PENSTOCK_FAULT_POINT_STATUS(kEtcdAfterTransaction);
    if (response.succeeded()) {
      turn_revision_ = response.header().revision();
      return absl::OkStatus();
    }
    const auto found = [&response](int place) -> const mvccpb::KeyValue* {
      if (response.responses_size() <= place) return nullptr;
      const etcdserverpb::RangeResponse& range = response.responses(place).response_range();
      return range.kvs_size() == 0 ? nullptr : &range.kvs(0);
    };
    const mvccpb::KeyValue *const leading = found(0), *const last = found(1);
    if (leading == nullptr || leading->create_revision() != term_) {
      deposed_ = absl::AbortedError(
          absl::StrCat("this coordinator leads no longer and writes nothing more: the key ", leader,
                       " in etcd is ",
                       leading == nullptr ? "gone, so another will lead"
                                          : absl::StrCat("that of ", leading->value())));
      return deposed_;
    }
    // A transaction whose answer was lost was done since: an attempt at this one, or one before it.
    turn_revision_ = last == nullptr ? 0 : last->mod_revision();
    if (last != nullptr && last->value() == number) return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat(
      "the key ", turn, " in etcd changes all the time; does somebody else write it?"));
}

}  // namespace penstock
