// JobStore: drops damaged rows, for an operator who has no backup, and seals what is left.
//
// It reads every row. What SQLite itself cannot read is beyond it.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/coordinator/job_store.h"
#include "services/coordinator/job_store_rows.h"

namespace penstock {

absl::Status JobStore::Mend(const OnDropped& on_dropped) {
  PENSTOCK_RETURN_IF_ERROR(MendJobs(on_dropped));
  PENSTOCK_RETURN_IF_ERROR(MendTimelines(on_dropped));
  PENSTOCK_RETURN_IF_ERROR(MendEvents(on_dropped));
  PENSTOCK_RETURN_IF_ERROR(MendLayerTimes(on_dropped));
  return MendSeal(on_dropped);
}

absl::Status JobStore::MendJobs(const OnDropped& on_dropped) {
  std::vector<int64_t> damaged;
  {
    std::set<std::string> ids;
    PENSTOCK_ASSIGN_OR_RETURN(
        SqliteStatement query,
        database_.Prepare("SELECT number, digest, job_id, idempotency_key, record FROM jobs"));
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      const int64_t number = query.Int(0);
      const std::string job_id = query.Bytes(2);
      const bool good =
          JobDigest(number, job_id, query.Bytes(3), query.Bytes(4)) == query.Bytes(1) &&
          ids.insert(job_id).second;
      if (good) continue;
      damaged.push_back(number);
      on_dropped(absl::StrCat("table jobs, row ", number, ": job ", absl::CHexEscape(job_id),
                              ", with its events and its timeline"));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement drop,
                            database_.Prepare("DELETE FROM jobs WHERE number = ?"));
  for (const int64_t number : damaged) PENSTOCK_RETURN_IF_ERROR(drop.BindInt(1, number).Run());
  return database_.Execute(
      "DELETE FROM timelines WHERE job_id NOT IN (SELECT job_id FROM jobs);"
      "DELETE FROM events WHERE job_id NOT IN (SELECT job_id FROM jobs);");
}

absl::Status JobStore::MendTimelines(const OnDropped& on_dropped) {
  std::vector<std::string> damaged;
  {
    PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement query,
                              database_.Prepare("SELECT job_id, digest, timeline FROM timelines"));
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      const std::string job_id = query.Bytes(0);
      if (TimelineDigest(job_id, query.Bytes(2)) == query.Bytes(1)) continue;
      damaged.push_back(job_id);
      on_dropped(absl::StrCat("table timelines: the timeline of job ", job_id));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement drop,
                            database_.Prepare("DELETE FROM timelines WHERE job_id = ?"));
  for (const std::string& job_id : damaged) {
    PENSTOCK_RETURN_IF_ERROR(drop.BindText(1, job_id).Run());
  }
  return absl::OkStatus();
}

// What follows a damaged or missing event is chained to what is before it.
absl::Status JobStore::MendEvents(const OnDropped& on_dropped) {
  struct Place {
    std::string job_id;
    int64_t sequence = 0;
    int64_t previous = 0;
    std::string event = {};
  };
  std::vector<Place> damaged;
  std::vector<Place> chained_anew;
  std::map<std::string, int64_t> last_sequences;
  {
    PENSTOCK_ASSIGN_OR_RETURN(
        SqliteStatement query,
        database_.Prepare("SELECT job_id, sequence, previous, digest, event FROM events ORDER BY "
                          "job_id, sequence"));
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      Place place = {.job_id = query.Bytes(0), .sequence = query.Int(1), .previous = query.Int(2)};
      const std::string event = query.Bytes(4);
      if (EventDigest(place.job_id, place.sequence, place.previous, event) != query.Bytes(3)) {
        on_dropped(absl::StrCat("table events: event ", place.sequence, " of job ", place.job_id));
        damaged.push_back(std::move(place));
        continue;
      }
      const int64_t last = std::exchange(last_sequences[place.job_id], place.sequence);
      if (place.previous == last) continue;
      on_dropped(absl::StrCat("table events: events of job ", place.job_id, " between ", last,
                              " and ", place.sequence));
      place.previous = last;
      place.event = event;
      chained_anew.push_back(std::move(place));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement drop,
      database_.Prepare("DELETE FROM events WHERE job_id = ? AND sequence = ?"));
  for (const Place& place : damaged) {
    PENSTOCK_RETURN_IF_ERROR(drop.BindText(1, place.job_id).BindInt(2, place.sequence).Run());
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      SqliteStatement chain,
      database_.Prepare(
          "UPDATE events SET previous = ?3, digest = ?4 WHERE job_id = ?1 AND sequence = ?2"));
  for (const auto& [job_id, sequence, previous, event] : chained_anew) {
    PENSTOCK_RETURN_IF_ERROR(chain.BindText(1, job_id)
                                 .BindInt(2, sequence)
                                 .BindInt(3, previous)
                                 .BindBlob(4, EventDigest(job_id, sequence, previous, event))
                                 .Run());
  }
  {
    PENSTOCK_ASSIGN_OR_RETURN(
        SqliteStatement query,
        database_.Prepare("SELECT job_id, digest, last_sequence FROM event_heads WHERE job_id IN "
                          "(SELECT job_id FROM jobs)"));
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      const std::string job_id = query.Bytes(0);
      const int64_t head = query.Int(2), last = last_sequences[job_id];
      if (HeadDigest(job_id, head) != query.Bytes(1) || head == last) continue;
      on_dropped(absl::StrCat("table events: events of job ", job_id, " after ", last));
    }
  }
  std::erase_if(last_sequences, [](const auto& entry) { return entry.second == 0; });
  PENSTOCK_RETURN_IF_ERROR(database_.Execute("DELETE FROM event_heads"));
  for (const auto& [job_id, sequence] : last_sequences) {
    PENSTOCK_RETURN_IF_ERROR(WriteHead(job_id, sequence));
  }
  return absl::OkStatus();
}

absl::Status JobStore::MendLayerTimes(const OnDropped& on_dropped) {
  std::vector<int64_t> damaged;
  {
    PENSTOCK_ASSIGN_OR_RETURN(
        SqliteStatement query,
        database_.Prepare("SELECT number, key, times, sha256 FROM layer_times"));
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
      if (!row) break;
      if (LayerTimesDigest(query.Bytes(1), query.Bytes(2)) == query.Bytes(3)) continue;
      damaged.push_back(query.Int(0));
      on_dropped(absl::StrCat("table layer_times, row ", damaged.back(), ": measured again"));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement drop,
                            database_.Prepare("DELETE FROM layer_times WHERE number = ?"));
  for (const int64_t number : damaged) PENSTOCK_RETURN_IF_ERROR(drop.BindInt(1, number).Run());
  return absl::OkStatus();
}

absl::Status JobStore::MendSeal(const OnDropped& on_dropped) {
  index_ = Index();
  PENSTOCK_RETURN_IF_ERROR(ReadJobs());
  PENSTOCK_RETURN_IF_ERROR(ReadTimelines());
  Seal seal = index_.seal;
  const absl::StatusOr<Seal> before = ReadSeal();
  if (before.ok()) {
    seal.changes = before->changes;
    const auto tell = [&](absl::string_view table, int64_t had, int64_t has) {
      if (had != has) {
        on_dropped(absl::StrCat("table ", table, ": had ", had, " rows, ", has, " are left"));
      }
    };
    tell("jobs", before->jobs, seal.jobs);
    tell("timelines", before->timelines, seal.timelines);
  } else {
    on_dropped(std::string("table seal: it was damaged, so rows of other tables may be missing"));
  }
  return WriteSeal(seal);
}

}  // namespace penstock
