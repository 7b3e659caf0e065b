// The coordinator's state file after damage: the store is refused, or all that is read from it is what was written. With
// leave to drop what is damaged, what is left is what was written, too.
//
// An input is changes of the file, in four bytes of place and one of value each.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/coordinator/job_store.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::string ReadStateFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteStateFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A folder of this process with a small state file, whose bytes and contents are kept.
class FuzzedStore {
 public:
  static constexpr char kJobs[][8] = {"gpt-1", "gpt-2", "mlp-1"};

  FuzzedStore()
      : folder_(fs::temp_directory_path() / absl::StrCat("penstock-state-fuzz-", getpid())),
        path_((folder_ / "state.sqlite").string()) {
    Clear();
    absl::StatusOr<JobStore> store = JobStore::Open(path_);
    PENSTOCK_CHECK(store.ok());
    for (const char* job_id : kJobs) {
      SaveJob job{.record = {}, .idempotency_key = absl::StrCat("key of ", job_id)};
      job.record.mutable_summary()->set_job_id(job_id);
      job.record.mutable_summary()->set_state(v1::JOB_STATE_SUCCEEDED);
      PublishEvent event{job_id, {}};
      event.event.set_sequence(1);
      event.event.set_log("began");
      JobStore::Change::Timeline timeline = {job_id, {}};
      timeline.timeline.set_workers(2);
      PENSTOCK_CHECK(
          store->Write({{.job = &job}, {.event = &event}, {.timeline = &timeline}}).ok());
      records_[job_id] = job.record.SerializeAsString();
    }
    store = absl::UnavailableError("closed");
    bytes_ = ReadStateFile(path_);
    witness_ = ReadStateFile(JobStore::WitnessPath(path_));
    PENSTOCK_CHECK(!bytes_.empty() && !witness_.empty());
  }
  ~FuzzedStore() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  // Puts the file there with these changes. Returns its path.
  const std::string& Damage(FuzzBytes changes) {
    Clear();
    std::string bytes = bytes_;
    while (!changes.empty()) {
      const size_t place = changes.Take<uint32_t>() % bytes.size();
      bytes[place] = changes.Take<char>();
    }
    WriteStateFile(path_, bytes);
    WriteStateFile(JobStore::WitnessPath(path_), witness_);
    return path_;
  }

  // What the store has of a job is what was written.
  void CheckJob(const StoredJob& job, JobStore& store) const {
    const std::string& id = job.record.summary().job_id();
    const auto known = records_.find(id);
    PENSTOCK_CHECK(known != records_.end() && job.record.SerializeAsString() == known->second);
    PENSTOCK_CHECK(job.idempotency_key == absl::StrCat("key of ", id));
    const absl::StatusOr<v1::GetTimelineResponse> timeline = store.ReadTimeline(id);
    PENSTOCK_CHECK(!timeline.ok() || timeline->workers() == 2);
    const absl::StatusOr<std::vector<v1::JobEvent>> events = store.ReadEvents(id, 0, 10);
    PENSTOCK_CHECK(!events.ok() || events->size() <= 1);
    PENSTOCK_CHECK(!events.ok() || events->empty() || events->front().log() == "began");
  }

 private:
  void Clear() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  const fs::path folder_;
  const std::string path_;
  std::string bytes_;
  std::string witness_;
  std::map<std::string, std::string> records_;  // by job
};

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(state_file) {
  using namespace penstock;
  static FuzzedStore fuzzed;
  if (absl::StatusOr<JobStore> store = JobStore::Open(fuzzed.Damage(FuzzBytes(data, size)));
      store.ok()) {
    const absl::StatusOr<std::vector<StoredJob>> jobs = store->Load();
    if (jobs.ok()) {
      FuzzAccepted();
      PENSTOCK_CHECK(jobs->size() == std::size(FuzzedStore::kJobs));
      for (const StoredJob& job : *jobs) fuzzed.CheckJob(job, *store);
    }
  }
  absl::StatusOr<JobStore> mended =
      JobStore::Open(fuzzed.Damage(FuzzBytes(data, size)),
                     [](const std::string& line) { PENSTOCK_CHECK(!line.empty()); });
  if (!mended.ok()) return 0;
  const absl::StatusOr<std::vector<StoredJob>> jobs = mended->Load();
  if (!jobs.ok()) return 0;
  for (const StoredJob& job : *jobs) fuzzed.CheckJob(job, *mended);
  return 0;
}
