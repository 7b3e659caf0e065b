// EtcdStore: a StateStore in a cluster of etcd, for the coordinator that leads. The keys below the cluster's prefix:
//
//   leader                   who leads: a lease's key, held by its coordinator (election.h)
//   version                  of these rows
//   turn                     the last transaction: its term and number
//   jobs/ID                  the record
//   heads/ID                 the sequence of the job's last event
//   events/ID/SEQUENCE
//   timelines/ID
//   times/NUMBER/HASH        layer times, in the order of writing
//   parts/ROW/DIGEST/NUMBER  of a value that is too long for its row
//
// A value is a StoredRow (stored_row.proto) with a digest, since what is read should be what was written. There is no seal
// over all rows, as an SQLite file has: etcd keeps a checked log on several machines, so no single disk takes rows away.
//
// Each transaction compares the revision at which the leader's key was made with that of this term. So as soon as another
// leads, no write of an earlier leader is done any more, whatever its clock says and however late a request arrives: it
// fails with Aborted, and all later ones do.
//
// A Write is one transaction unless etcd would refuse that as too large. Then the events of a job go first, in their order,
// and its record goes with the last of them. A new value that is long is put under its digest before the row that names it.
//
// When the answer to a transaction is lost, it is unknown whether it was done, or will be: it may be on its way through a slow
// member while later ones are done. So each also compares the revision of `turn`, which each changes: it is done in its turn
// or never, and who makes it again finds its own number there. The rows are the same when they are written again. A job that
// was new, and is not, was refused to its submitter; its row is removed by the next Write or Touch.
//
// Thread-compatible: one thread at a time. REQUIRES: `etcd` outlives it. Each call to etcd waits kCallTimeout at most.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/stored_row.pb.h"
#include "services/coordinator/state_store.h"
#include "services/etcd/etcd_calls.h"

namespace penstock {

// Returns the leader's key of the cluster at `prefix`.
std::string LeaderKey(absl::string_view prefix);

class EtcdStore final : public StateStore {
 public:
  static constexpr char kVersion[] = "1";
  // A value that is longer is in parts, of this length at most.
  static constexpr size_t kInlineBytesMax = 64 << 10;
  static constexpr size_t kPartBytesMax = 480 << 10;
  // The keys that are read at a time, so that an answer stays below kResponseBytesMax.
  static constexpr int kPageRows = 128;
  static constexpr int kPageParts = 16;
  static constexpr int kPageKeys = 10'000;

  // Reads what there is. `term`: the revision at which the key of this coordinator's leadership was made.
  // Errors: Unimplemented (rows of a later version), Aborted (another leads), DataLoss, those of EtcdCalls.
  static absl::StatusOr<std::unique_ptr<EtcdStore>> Open(EtcdCalls& etcd, const std::string& prefix,
                                                         int64_t term);

  std::string name() const override { return "state in etcd"; }
  std::string remedy() const override { return "mend etcd"; }
  absl::Status Write(absl::Span<const Change> changes) override;
  absl::Status Touch() override;
  absl::StatusOr<std::vector<StoredJob>> Load() override;
  absl::StatusOr<v1::GetJobResponse> ReadRecord(const std::string& job_id) override;
  absl::StatusOr<v1::GetTimelineResponse> ReadTimeline(const std::string& job_id) override;
  absl::StatusOr<v1::DeviceProfile> ReadLayerTimes(const std::string& key) override;
  absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const std::string& job_id,
                                                       int64_t after_sequence,
                                                       int count_max) override;

 private:
  struct JobRow {
    int64_t number = 0;
    std::string idempotency_key;
  };
  // What is known of the rows without reading them.
  struct Index {
    std::map<std::string, JobRow> jobs;          // by id
    std::map<std::string, int64_t> heads;        // the last sequence, by job id
    std::set<std::string> timelines;             // of the jobs with these ids
    std::map<std::string, bool> parts;           // whether a row has some; by row
    std::map<std::string, int64_t> layer_times;  // the number, by the key's hash
    int64_t last_job_number = 0;
    int64_t last_times_number = 0;
  };
  // Operations that one transaction has to do together.
  using Unit = std::vector<etcdserverpb::RequestOp>;
  struct Draft {
    Index changed;  // of the index, by the units; `layer_times` is whole, or empty
    std::vector<Unit> units;
  };
  // What a Write has of one job.
  struct JobChanges {
    const SaveJob* job = nullptr;
    std::string idempotency_key;
    std::vector<const PublishEvent*> events;
    const Change::Timeline* timeline = nullptr;
  };

  EtcdStore(EtcdCalls& etcd, std::string prefix, int64_t term)
      : etcd_(etcd), prefix_(std::move(prefix)), term_(term) {}

  // ---- etcd_store.cc: writing.
  Draft DraftOf(absl::Span<const Change> changes) const;
  void DraftJob(const std::string& job_id, const JobChanges& changed, Draft& draft) const;
  void DraftLayerTimes(const KeepLayerTimes& keep, Draft& draft) const;
  // Adds the row to `unit`, and before it, as units of their own, the parts of its value if that is long.
  void DraftRow(const std::string& row, v1::StoredRow stored, const std::string& value, Unit& unit,
                Draft& draft) const;
  // Adds to `unit` that the parts of the row's value go, if it has any.
  void DraftPartsGone(const std::string& row, Unit& unit, Draft& draft) const;
  etcdserverpb::RequestOp Put(absl::string_view row, const std::string& value) const;
  etcdserverpb::RequestOp Delete(absl::string_view row) const;
  // Removes the rows from `begin` to before `end`.
  etcdserverpb::RequestOp Delete(absl::string_view begin, absl::string_view end) const;
  // Removes the parts of a row, but for those of the value that has this digest, if any.
  Unit DeleteParts(const std::string& row, const std::string& kept_digest_hex) const;
  // Does the units in order, in as few transactions as etcd takes.
  absl::Status Commit(std::vector<Unit> units);
  // Does it, once, if this coordinator leads. Errors: Aborted (for good), those of EtcdCalls.
  absl::Status Commit(etcdserverpb::TxnRequest transaction);

  // ---- etcd_store_read.cc: reading.
  // Checks the version of the rows, and takes the first turn of the term.
  absl::Status Begin();
  absl::Status ReadIndex();
  // Removes what no row names: of writes that were not finished.
  absl::Status DropLooseParts();
  // How ForEach reads.
  struct Reading {
    int page = kPageRows;  // keys at a time
    bool keys_only = false;
    int64_t count_max = 0;  // 0: all
  };
  // Takes the row and its value; `stored` is empty where only keys are read.
  using TakeRow = std::function<absl::Status(const std::string& row, const v1::StoredRow& stored)>;
  // Asks etcd. Errors: DataLoss (it answers with other keys than were asked for), those of EtcdCalls.
  absl::StatusOr<etcdserverpb::RangeResponse> ReadPage(const etcdserverpb::RangeRequest& request);
  // Calls `take` with each row from `begin` to before `end`, in order.
  absl::Status ForEach(const std::string& begin, const std::string& end, const Reading& reading,
                       const TakeRow& take);
  using TakeJob = std::function<absl::Status(const std::string& job_id, const v1::StoredRow& stored,
                                             const v1::GetJobResponse& record)>;
  absl::Status ForEachJob(const TakeJob& take);
  // Errors: NotFound, DataLoss.
  absl::StatusOr<v1::StoredRow> ReadRow(const std::string& row);
  // Reads one that is in the index. Errors: DataLoss, also if etcd does not have it.
  absl::StatusOr<v1::StoredRow> ReadKnownRow(const std::string& row);
  // Returns the value of a row, put together. Errors: DataLoss.
  absl::StatusOr<std::string> ValueOf(const std::string& row, const v1::StoredRow& stored);
  absl::StatusOr<v1::GetJobResponse> RecordOf(const std::string& job_id,
                                              const v1::StoredRow& stored);
  absl::Status Damaged(absl::string_view row, absl::string_view what) const;

  std::string KeyOf(absl::string_view row) const { return absl::StrCat(prefix_, "/", row); }

  EtcdCalls& etcd_;
  const std::string prefix_;
  const int64_t term_;
  Index index_;
  std::set<std::string> uncertain_jobs_;  // that were new in a Write that failed, by id
  int64_t turn_revision_ = 0;             // of the last turn that is known
  int64_t turns_ = 0;                     // transactions of this term
  absl::Status deposed_;                  // OK while no transaction has shown that another leads
};

}  // namespace penstock
