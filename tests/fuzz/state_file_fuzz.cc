// The coordinator's state file after damage: the store is refused, or all that is read from it is what was written. With
// leave to drop what is damaged, what is left is what was written, too.
//
// An input is changes of the file, in four bytes of place and one of value each.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/coordinator/job_store.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/fuzzed_jobs.h"

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
  FuzzedStore()
      : folder_(fs::temp_directory_path() / absl::StrCat("penstock-state-fuzz-", getpid())),
        path_((folder_ / "state.sqlite").string()) {
    Clear();
    absl::StatusOr<JobStore> store = JobStore::Open(path_);
    PENSTOCK_CHECK(store.ok());
    WriteFuzzedJobs(*store);
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

 private:
  void Clear() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  const fs::path folder_;
  const std::string path_;
  std::string bytes_;
  std::string witness_;
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
      PENSTOCK_CHECK(jobs->size() == std::size(kFuzzedJobs));
      for (const StoredJob& job : *jobs) CheckFuzzedJob(job, *store);
    }
  }
  absl::StatusOr<JobStore> mended =
      JobStore::Open(fuzzed.Damage(FuzzBytes(data, size)),
                     [](const std::string& line) { PENSTOCK_CHECK(!line.empty()); });
  if (!mended.ok()) return 0;
  const absl::StatusOr<std::vector<StoredJob>> jobs = mended->Load();
  if (!jobs.ok()) return 0;
  for (const StoredJob& job : *jobs) CheckFuzzedJob(job, *mended);
  return 0;
}
