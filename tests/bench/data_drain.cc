// Reads the training samples of a job one step after the other, as its workers do, and prints how fast, and how much memory
// that took.
//
// usage: data_drain JOB.yaml BYTES [FIRST_STEP]   BYTES: how many are read from the first port, at least
//
// Prints one line of JSON: the bytes that were read, the seconds, a checksum of them, and the peak of the resident memory
// (VmHWM, in bytes), which counts pages of files that are mapped as well.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/crc32c.h"
#include "base/files.h"
#include "base/status.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "worker/open_data.h"

namespace penstock {
namespace {

int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    int64_t kibibytes = 0;
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, "VmHWM:") || !absl::ConsumeSuffix(&rest, " kB")) continue;
    if (absl::SimpleAtoi(rest, &kibibytes)) return kibibytes << 10;
  }
  return 0;
}

absl::Status Drain(const std::string& path, int64_t bytes, int64_t first_step) {
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ReadJobDocument(path));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSpec spec, CompleteJob(std::move(document)));
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
  const std::string root = path.substr(0, path.rfind('/') + 1);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<DataSource> data,
                            OpenData(RealFiles(), spec, job, root, RunLimits()));
  std::vector<std::byte> step(job.batch * job.model.ports[0].type.size_bytes());
  const auto began = std::chrono::steady_clock::now();
  uint32_t checksum = 0;
  int64_t read = 0;
  for (int64_t sample = first_step * job.batch; read < bytes; sample += job.batch) {
    PENSTOCK_RETURN_IF_ERROR(
        data->Read(Split::kTraining, sample, /*port=*/0, absl::MakeSpan(step)));
    checksum = Crc32c(step.data(), step.size(), checksum);
    read += static_cast<int64_t>(step.size());
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  std::printf(
      "{\"bytes\": %lld, \"seconds\": %.3f, \"crc32c\": %u, \"peak_resident_bytes\": %lld}\n",
      static_cast<long long>(read), seconds.count(), checksum,
      static_cast<long long>(PeakResidentBytes()));
  return absl::OkStatus();
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  int64_t bytes = 0;
  int64_t first_step = 0;
  if (argc < 3 || argc > 4 || !absl::SimpleAtoi(argv[2], &bytes) ||
      (argc == 4 && !absl::SimpleAtoi(argv[3], &first_step))) {
    std::fprintf(stderr, "usage: data_drain JOB.yaml BYTES [FIRST_STEP]\n");
    return 2;
  }
  const absl::Status status = penstock::Drain(argv[1], bytes, first_step);
  if (status.ok()) return 0;
  std::fprintf(stderr, "data_drain: %s\n", std::string(status.message()).c_str());
  return 1;
}
